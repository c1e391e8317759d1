// A minimal agent with an informer. It prints the changes of the ConfigMaps of a namespace. Compare
// ../ours.
//
//	agent [URL]    URL of a server without TLS; default: the cluster of the Pod
package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// ConfigMap has the fields that the agent needs. Its own type is leaner than the one of k8s.io/api,
// which links all types of the core group.
type ConfigMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Data              map[string]string `json:"data,omitempty"`
}

// ConfigMapList is a list of ConfigMaps.
type ConfigMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConfigMap `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (m *ConfigMap) DeepCopyObject() runtime.Object {
	out := &ConfigMap{TypeMeta: m.TypeMeta, Data: make(map[string]string, len(m.Data))}
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	for key, value := range m.Data {
		out.Data[key] = value
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *ConfigMapList) DeepCopyObject() runtime.Object {
	out := &ConfigMapList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*ConfigMap))
	}
	return out
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	version := schema.GroupVersion{Version: "v1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &ConfigMap{}, &ConfigMapList{})
	metav1.AddToGroupVersion(scheme, version)

	config := &rest.Config{}
	if len(os.Args) > 1 {
		config.Host = os.Args[1]
	} else {
		var err error
		if config, err = rest.InClusterConfig(); err != nil {
			return err
		}
	}
	config.APIPath = "/api"
	config.GroupVersion = &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}

	source := cache.NewListWatchFromClient(client, "configmaps", "default", fields.Everything())
	informer := cache.NewSharedIndexInformer(source, &ConfigMap{}, 0, cache.Indexers{})
	if err := informer.SetTransform(sameFields); err != nil {
		return err
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(m any) { fmt.Println("+", m.(*ConfigMap).Name, len(m.(*ConfigMap).Data)) },
		UpdateFunc: func(_, m any) { fmt.Println("~", m.(*ConfigMap).Name, len(m.(*ConfigMap).Data)) },
		DeleteFunc: func(m any) {
			if key, err := cache.DeletionHandlingObjectToName(m); err == nil {
				fmt.Println("-", key.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	go informer.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), handler.HasSynced)
	fmt.Println("synced", len(informer.GetStore().ListKeys()))
	<-ctx.Done()
	return nil
}

// sameFields keeps the fields that our struct has.
func sameFields(object any) (any, error) {
	if m, ok := object.(*ConfigMap); ok {
		m.ObjectMeta = metav1.ObjectMeta{
			Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		}
	}
	return object, nil
}
