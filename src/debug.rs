//! Short implementations of `Debug`.

/// Implements `Debug` for a struct. It shows these fields, and needs no `Debug` of the type
/// parameters. The second form shows values; `this` is the struct.
macro_rules! debug_fields {
    ($type:ident $(<$($parameter:ident),+>)?: $($field:ident),*) => {
        debug_fields!($type $(<$($parameter),+>)?, _this $(, $field: _this.$field)*);
    };
    ($type:ident $(<$($parameter:ident),+>)?, $this:ident $(, $field:ident: $value:expr)*) => {
        impl $(<$($parameter),+>)? std::fmt::Debug for $type $(<$($parameter),+>)? {
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

pub(crate) use debug_fields;
