//! Pods as an API server sends them, and the response bodies that contain them. All bytes are
//! rendered before a measurement, so the server side costs almost nothing.

use std::io::{self, Read};
use std::ops::Range;

use k8s_informer::reflector::Body;

/// The versions of the first list and of the second one, in which one object in a hundred has
/// changed.
pub(crate) const VERSIONS: [&str; 2] = ["2000000", "3000000"];

/// One out of this many Pods changes between the two lists.
pub(crate) const CHANGED: usize = 100;

/// The items of a list. Each has 5 to 7 kB, two fifths of which are managedFields.
#[derive(Clone, Copy)]
pub(crate) struct Pods {
    /// All items of the first list, then the changed ones.
    bytes: &'static [u8],
    /// The position of each item in `bytes`.
    items: &'static [Range<usize>],
    count: usize,
}

impl Pods {
    /// Renders the same Pods each time, and leaks them.
    pub(crate) fn new(count: usize) -> Self {
        Self::render(count, true)
    }

    pub(crate) fn without_managed_fields(count: usize) -> Self {
        Self::render(count, false)
    }

    /// Renders small ConfigMaps instead of Pods, of 460 bytes. Their keys have 34 bytes.
    pub(crate) fn config_maps(count: usize) -> Self {
        let template: String = CONFIG_MAP.lines().map(str::trim_start).collect();
        Self::of_template(&template, count, 600)
    }

    fn render(count: usize, managed: bool) -> Self {
        let template: String = TEMPLATE.lines().map(str::trim_start).collect();
        let (before, rest) = template
            .split_once(",\"managedFields\"")
            .expect("the template has managedFields");
        let (_, after) = rest
            .split_once("@end@")
            .expect("the template has an end mark");
        let template = if managed {
            template.replace("@end@", "")
        } else {
            format!("{before}{after}")
        };
        Self::of_template(&template, count, 7500)
    }

    /// Renders objects of at most `size` bytes.
    fn of_template(template: &str, count: usize, size: usize) -> Self {
        let changed = count.div_ceil(CHANGED);
        // Allocate the final size at once: if the buffer grew, the measured code would reuse the
        // freed memory.
        let mut bytes = Vec::with_capacity((count + changed) * size);
        let mut items = Vec::with_capacity(count + changed);
        let new = (0..count).map(|n| (n, VERSIONS[0]));
        for (n, version) in new.chain((0..changed).map(|n| (n * CHANGED, VERSIONS[1]))) {
            let start = bytes.len();
            pod(template, n, version, &mut bytes);
            items.push(start..bytes.len());
        }
        Self {
            bytes: bytes.leak(),
            items: items.leak(),
            count,
        }
    }

    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// Returns the total size of the first list in bytes.
    pub(crate) fn bytes(self) -> usize {
        self.items[self.count - 1].end
    }

    /// Returns the JSON of one Pod in the first or the second list.
    pub(crate) fn item(self, n: usize, list: usize) -> &'static [u8] {
        let at = if list == 1 && n.is_multiple_of(CHANGED) {
            self.count + n / CHANGED
        } else {
            n
        };
        &self.bytes[self.items[at].clone()]
    }

    /// Returns a page of the first or the second list: at most `limit` items from `start`.
    pub(crate) fn page(self, list: usize, start: usize, limit: usize) -> Body {
        let end = self.count.min(start.saturating_add(limit));
        let version = VERSIONS[list];
        let more = match self.count - end {
            0 => String::new(),
            left => format!(r#","continue":"{end}","remainingItemCount":{left}"#),
        };
        Body::new(Items {
            pods: self,
            list,
            range: start..end,
            head: format!(
                concat!(
                    r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{}"{}}},"#,
                    r#""items":["#
                ),
                version, more
            ),
            before: [b"", b","],
            skipped: 0,
            after: b"",
            tail: "]}\n".to_owned(),
            part: 0,
            written: 0,
        })
    }

    /// Returns the first or the second list as the initial events of a watch, with the final
    /// bookmark.
    pub(crate) fn initial_events(self, list: usize) -> Body {
        const ADDED: &[u8] = br#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","#;
        let version = VERSIONS[list];
        Body::new(Items {
            pods: self,
            list,
            range: 0..self.count,
            head: String::new(),
            before: [ADDED; 2],
            // Skip the opening brace of each item, because `ADDED` ends in the middle of the
            // object.
            skipped: 1,
            after: b"}\n",
            tail: format!(
                concat!(
                    r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"#,
                    r#""resourceVersion":"{}","creationTimestamp":null,"#,
                    r#""annotations":{{"k8s.io/initial-events-end":"true"}}}},"#,
                    r#""spec":{{"containers":null}},"status":{{}}}}}}"#,
                    "\n"
                ),
                version
            ),
            part: 0,
            written: 0,
        })
    }
}

/// A stream of items, with bytes around each item and around all of them. It stores only its
/// position.
struct Items {
    pods: Pods,
    list: usize,
    range: Range<usize>,
    head: String,
    /// The bytes before the first item, and before each other item.
    before: [&'static [u8]; 2],
    /// The number of bytes that are omitted at the beginning of each item.
    skipped: usize,
    after: &'static [u8],
    tail: String,
    /// The part that is being sent, and the number of its bytes that were sent. The parts are the
    /// head, three for each item, and the tail.
    part: usize,
    written: usize,
}

impl Read for Items {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut length = 0;
        loop {
            let items = self.range.len();
            let bytes = match self.part {
                0 => self.head.as_bytes(),
                part if part <= 3 * items => match ((part - 1) / 3, (part - 1) % 3) {
                    (item, 0) => self.before[usize::from(item > 0)],
                    (item, 1) => {
                        &self.pods.item(self.range.start + item, self.list)[self.skipped..]
                    }
                    _ => self.after,
                },
                part if part == 3 * items + 1 => self.tail.as_bytes(),
                _ => return Ok(length),
            };
            let bytes = &bytes[self.written..];
            let some = bytes.len().min(buffer.len() - length);
            buffer[length..length + some].copy_from_slice(&bytes[..some]);
            length += some;
            if some < bytes.len() {
                self.written += some;
                return Ok(length);
            }
            (self.part, self.written) = (self.part + 1, 0);
        }
    }
}

/// Returns the key of a Pod. The keys ascend, like those of an API server.
pub(crate) fn key(n: usize) -> String {
    format!("{}/{}", namespace(n), name(n))
}

fn namespace(n: usize) -> String {
    format!("team-{:03}", n / 500)
}

fn app(n: usize) -> String {
    format!("web-{:04}", n / 100)
}

fn name(n: usize) -> String {
    format!("{}-5d8f9c7b6d-{n:05}", app(n))
}

fn pod(template: &str, n: usize, version: &str, json: &mut Vec<u8>) {
    let seed = n.wrapping_mul(0x9e37_79b9) % 0xffff_ffff;
    // The names between percent signs are replaced by the values of this Pod.
    for (at, part) in template.split('%').enumerate() {
        let text = match part {
            _ if at % 2 == 0 => part,
            "app" => &app(n),
            "name" => &name(n),
            "namespace" => &namespace(n),
            "version" => version,
            "uid" => &format!("{seed:08x}-5f0c-4d1e-9b57-{n:012x}"),
            "node" => &format!("node-{:03}.eu-central-1.compute.internal", n % 150),
            "ip" => &format!("10.{}.{}.{}", n / 65536 % 256, n / 256 % 256, n % 256),
            "second" => &format!("{:02}", n % 60),
            "hash" => &format!("{:064x}", seed as u128 * 0x1_0000_0001_0001),
            // Annotations and environment variables vary the size.
            "text" => &"checksum-".repeat(1 + seed % 100),
            "env" => &(0..seed % 9)
                .map(|n| format!(r#",{{"name":"FEATURE_{n}","value":"on"}}"#))
                .collect::<String>(),
            other => unreachable!("{other}"),
        };
        json.extend_from_slice(text.as_bytes());
    }
}

/// The template of a ConfigMap. The lines are joined.
const CONFIG_MAP: &str = r#"{"metadata":{"name":"%name%","namespace":"%namespace%","uid":"%uid%",
"resourceVersion":"%version%","creationTimestamp":"2025-11-20T08:15:%second%Z",
"labels":{"app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":"%app%"},
"annotations":{"example.com/sent-at":"00000000000000000000"}},
"data":{"host":"%node%","port":"8080","log":"json"}}"#;

/// The template of a Pod. The lines are joined.
const TEMPLATE: &str = r#"{"metadata":{"name":"%name%","generateName":"%app%-5d8f9c7b6d-",
    "namespace":"%namespace%",
"uid":"%uid%","resourceVersion":"%version%","generation":1,"creationTimestamp":"2025-11-20T08:15:%second%Z",
"labels":{"app.kubernetes.io/instance":"%app%-production","app.kubernetes.io/managed-by":"Helm",
    "app.kubernetes.io/name":"%app%","pod-template-hash":"5d8f9c7b6d"},
"annotations":{"checksum/config":"%hash%","example.com/notes":"%text%",
    "example.com/sent-at":"00000000000000000000","kubectl.kubernetes.io/restartedAt":"2025-11-20T08:15:00Z",
    "prometheus.io/port":"9102","prometheus.io/scrape":"true"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%app%-5d8f9c7b6d",
    "uid":"7d0c2a34-0e7e-4a3b-8d07-59a1c0f0a1b2","controller":true,"blockOwnerDeletion":true}]
,"managedFields":[
    {"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1",
    "time":"2025-11-20T08:15:%second%Z",
    "fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},
    "f:kubectl.kubernetes.io/restartedAt":{},"f:example.com/notes":{},"f:prometheus.io/port":{},
    "f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},
    "f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},
    "f:ownerReferences":{".":{},"k:{\"uid\":\"7d0c2a34-0e7e-4a3b-8d07-59a1c0f0a1b2\"}":{}}},
    "f:spec":{"f:affinity":{},"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:args":{},"f:env":{".":{},
    "k:{\"name\":\"DATABASE_URL\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:secretKeyRef":{}}},
    "k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},"f:image":{},
    "f:imagePullPolicy":{},"f:name":{},
    "f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},
    "f:name":{},
    "f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},
    "f:cpu":{},"f:memory":{}}},"f:volumeMounts":{".":{},
    "k:{\"mountPath\":\"/etc/app\"}":{".":{},"f:mountPath":{},"f:name":{}}}}},"f:dnsPolicy":{},
    "f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},
    "f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},"k:{\"name\":\"config\"}":{".":{},
    "f:configMap":{".":{},
    "f:defaultMode":{},"f:name":{}},"f:name":{}}}}}},
    {"manager":"mesh-webhook","operation":"Update","apiVersion":"v1","time":"2025-11-20T08:15:%second%Z",
    "fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"proxy\"}":{".":{},
    "f:image":{},
    "f:name":{},"f:resources":{}}}}}},
    {"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2025-11-20T08:16:%second%Z",
    "fieldsType":"FieldsV1",
    "fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},
    "f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},
    "k:{\"type\":\"Initialized\"}":{".":{},
    "f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},
    "k:{\"type\":\"Ready\"}":{".":{},
    "f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},
    "f:hostIP":{},
    "f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"%ip%\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},
    "subresource":"status"}]@end@},
"spec":{"volumes":[{"name":"config","configMap":{"name":"%app%-config","defaultMode":420}},
    {"name":"kube-api-access-x2b7q","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,
    "path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],
    "defaultMode":420}}],
"containers":[{"name":"app","image":"registry.example.com/team/%app%:v1.42.7","args":["--listen=:8080",
    "--log=json"],
    "ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"DATABASE_URL","valueFrom":
    {"secretKeyRef":{"name":"%app%-db","key":"url"}}},{"name":"POD_NAME",
    "valueFrom":{"fieldRef":{"apiVersion":"v1",
    "fieldPath":"metadata.name"}}}%env%],"resources":{"limits":{"cpu":"1","memory":"512Mi"},
    "requests":{"cpu":"100m","memory":"256Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/app"},
    {"name":"kube-api-access-x2b7q","readOnly":true,
    "mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],
    "imagePullPolicy":"IfNotPresent"},
    {"name":"proxy","image":"registry.example.com/mesh/proxy:1.24.1","resources":{"requests":{"cpu":"10m",
    "memory":"64Mi"}},"volumeMounts":[{"name":"kube-api-access-x2b7q","readOnly":true,
    "mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"imagePullPolicy":"IfNotPresent"}],
"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",
"serviceAccountName":"%app%","serviceAccount":"%app%","nodeName":"%node%","securityContext":{},
"schedulerName":"default-scheduler","priority":0,"enableServiceLinks":true,
    "preemptionPolicy":"PreemptLowerPriority"},
"status":{"phase":"Running","conditions":[
    {"type":"Initialized","status":"True","lastProbeTime":null,
    "lastTransitionTime":"2025-11-20T08:15:%second%Z"},
    {"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2025-11-20T08:16:%second%Z"},
    {"type":"ContainersReady","status":"True","lastProbeTime":null,
    "lastTransitionTime":"2025-11-20T08:16:%second%Z"}],
"hostIP":"192.168.7.31","podIP":"%ip%","podIPs":[{"ip":"%ip%"}],"startTime":"2025-11-20T08:15:%second%Z",
"containerStatuses":[{"name":"app","state":{"running":{"startedAt":"2025-11-20T08:15:%second%Z"}},
    "lastState":{},
    "ready":true,"restartCount":0,"image":"registry.example.com/team/%app%:v1.42.7",
    "imageID":"registry.example.com/team/%app%@sha256:%hash%","containerID":"containerd://%hash%",
    "started":true}],
"qosClass":"Burstable"}}"#;
