//! Defines enums with a list of their variants, so that the compiler checks the size of tables over them.

/// Declares a field-less enum with `COUNT`, `ALL`, `name()`, `index()` and `Display`.
///
/// Tables are arrays of length `COUNT`: a new variant does not compile until every table has a cell for it.
macro_rules! columns {
    (
        $(#[$outer:meta])*
        pub enum $name:ident { $( $(#[$inner:meta])* $variant:ident = $text:literal ),+ $(,)? }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $( $(#[$inner])* $variant ),+ }

        impl $name {
            /// Every variant, in order.
            pub const ALL: [$name; $name::COUNT] = [ $( $name::$variant ),+ ];
            /// The number of variants, and the width of every table over them.
            pub const COUNT: usize = [ $( $text ),+ ].len();

            /// The name in messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( $name::$variant => $text ),+ }
            }

            /// The position in `ALL`, and in every table over them.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use columns;
