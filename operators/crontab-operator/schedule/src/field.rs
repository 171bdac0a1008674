//! The five fields of an expression, and the sets of numbers that they hold.

/// One of the five fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// 0-59.
    Minute,
    /// 0-23.
    Hour,
    /// 1-31.
    DayOfMonth,
    /// 1-12 or jan-dec.
    Month,
    /// 0-6 or sun-sat.
    DayOfWeek,
}

impl Field {
    /// All fields, in the order of an expression.
    pub const ALL: [Self; 5] = [Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    /// Returns the name of the field for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        }
    }

    /// Returns the allowed values for messages.
    pub fn allowed(self) -> &'static str {
        match self {
            Self::Minute => "0-59",
            Self::Hour => "0-23",
            Self::DayOfMonth => "1-31",
            Self::Month => "1-12 or jan-dec",
            Self::DayOfWeek => "0-6 or sun-sat",
        }
    }

    pub(crate) const fn min(self) -> u8 {
        match self {
            Self::Minute | Self::Hour | Self::DayOfWeek => 0,
            Self::DayOfMonth | Self::Month => 1,
        }
    }

    pub(crate) const fn max(self) -> u8 {
        match self {
            Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::DayOfWeek => 6,
        }
    }

    /// Returns the set of all allowed numbers.
    pub(crate) fn all(self) -> Set {
        Set::range(self.min(), self.max(), 1)
    }

    /// Returns the number of a three-letter name, in upper or lower case.
    pub(crate) fn named(self, name: &str) -> Option<u8> {
        let names: &[&str] = match self {
            Self::Month => &MONTHS,
            Self::DayOfWeek => &WEEKDAYS,
            _ => &[],
        };
        (self.min()..)
            .zip(names)
            .find(|(_, it)| it.get(..3).is_some_and(|it| it.eq_ignore_ascii_case(name)))
            .map(|(n, _)| n)
    }
}

pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(crate) const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A set of numbers from 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Set(pub(crate) u64);

impl Set {
    /// Returns every `step`th number from `first` to `last`.
    pub(crate) fn range(first: u8, last: u8, step: u64) -> Self {
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        Self((first..=last).step_by(step).fold(0, |bits, n| bits | 1 << n))
    }

    pub(crate) fn contains(self, n: u32) -> bool {
        self.0 & (1 << n) != 0
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn first(self) -> Option<u32> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }

    pub(crate) fn last(self) -> Option<u32> {
        self.0.checked_ilog2()
    }

    /// Returns the numbers from `n` on. `n` is at most 63.
    pub(crate) fn from(self, n: u32) -> Self {
        Self(self.0 & (u64::MAX << n))
    }

    /// Returns the numbers below `n`. `n` is at most 63.
    pub(crate) fn below(self, n: u32) -> Self {
        Self(self.0 & !(u64::MAX << n))
    }

    /// Iterates in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let n = Self(rest).first()?;
            rest &= rest - 1;
            Some(n)
        })
    }
}

impl std::ops::BitOr for Set {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Set {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
