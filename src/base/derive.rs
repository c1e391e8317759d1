//! Implements traits without bounds on the type parameters, which `derive` would add.

/// Implements `Debug` for a struct and shows these fields. In the second form, the fields have
/// values, and `this` is the struct.
macro_rules! debug_fields {
    ($type:ident $(<$($parameter:ident $(: $bound:ident)?),+>)?: $($field:ident),*) => {
        debug_fields!($type $(<$($parameter $(: $bound)?),+>)?, _this $(, $field: _this.$field)*);
    };
    ($type:ident $(<$($parameter:ident $(: $bound:ident)?),+>)?, $this:ident $(, $field:ident: $value:expr)*) => {
        impl $(<$($parameter $(: $bound)?),+>)? std::fmt::Debug for $type $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                // A statement for each field: a value may lock what the next value locks.
                let mut fields = f.debug_struct(stringify!($type));
                $(fields.field(stringify!($field), &$value);)*
                fields.finish_non_exhaustive()
            }
        }
    };
}

/// Implements `Clone` for a struct with these fields.
macro_rules! clone_fields {
    ($type:ident<T>: $($field:ident),*) => {
        impl<T> Clone for $type<T> {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone(),)* }
            }
        }
    };
}

/// Declares that a caught panic leaves the values of a type as usable as before. No panic of user code
/// passes a lock that is held, and a change that it interrupts is undone or completed.
macro_rules! unwind_safe {
    ($type:ident $(<$parameter:ident $(: $bound:ident)?>)?) => {
        impl $(<$parameter $(: $bound)?>)? std::panic::UnwindSafe for $type $(<$parameter>)? {}
        impl $(<$parameter $(: $bound)?>)? std::panic::RefUnwindSafe for $type $(<$parameter>)? {}
    };
}

/// Writes the consuming setters of an options struct. Each one is
/// `field(argument: type) = the value of the field;`.
macro_rules! setters {
    ($($(#[$meta:meta])* $field:ident($argument:ident: $type:ty) = $value:expr;)*) => {$(
        $(#[$meta])*
        #[must_use]
        pub fn $field(mut self, $argument: $type) -> Self {
            self.$field = $value;
            self
        }
    )*};
}

pub(crate) use {clone_fields, debug_fields, setters, unwind_safe};
