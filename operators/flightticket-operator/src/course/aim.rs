//! What a poll may do for its ticket. Pure: each function returns the next aim.

use manager::Finding;

use crate::{FlightTicket, ticket::BOOKING_ID};

/// What a poll may do, and what it looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Aim {
    /// Report a booking. No request changes anything.
    Observe,
    /// Report a booking too. The poll has reported one that the airline has rejected, and looks for a later one, which a late request
    /// may have made under the same reference since.
    SeekLaterBooking,
    /// Manage the ticket's booking: buy it, take it over, change it, or replace it.
    Manage(Purchases),
    /// The status has a final answer. Only look for a valid booking that a late request has made under the ticket's reference.
    LookAgain(Purchases),
    /// Find the booking for another trip that keeps the provider from selling one. Contains what to report if it is not found.
    FindHolder(Purchases, Finding),
}

/// Which purchases a poll may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purchases {
    /// The first one, and by the ticket's `rebookPolicy` another one if the booking is lost.
    ByPolicy,
    /// Also another one if the airline has rejected the booking: the object has changed since that answer.
    AlsoAfterRejection,
    /// Only the one that the status stores, which may have happened already. Only an annotation says which booking the ticket has, or
    /// has said so at the beginning of the poll. A user may have written it, so no booking is replaced.
    OnlyStored,
}

impl Aim {
    /// Returns the aim at the beginning of a poll.
    pub(super) fn of(ticket: &FlightTicket) -> Self {
        if ticket.observes() {
            Self::Observe
        } else if ticket.own_booking().is_none() && ticket.annotation(BOOKING_ID).is_some() {
            Self::only_named()
        } else if ticket.is_retried() {
            Self::Manage(Purchases::AlsoAfterRejection)
        } else {
            Self::Manage(Purchases::ByPolicy)
        }
    }

    /// Returns the aim for a ticket whose booking only the annotation names.
    pub(super) fn only_named() -> Self {
        Self::Manage(Purchases::OnlyStored)
    }

    /// Returns the aim once nothing is looked for any more.
    pub(super) fn managing(&self) -> Self {
        self.purchases().map_or(Self::Observe, Self::Manage)
    }

    /// Returns the aim after an answer that is final unless a late request has made a booking since.
    pub(super) fn looking_again(&self) -> Self {
        self.purchases().map_or(Self::SeekLaterBooking, Self::LookAgain)
    }

    /// Returns the aim after the provider has refused a purchase, because another trip is booked under its reference.
    pub(super) fn finding_holder(&self, refused: Finding) -> Self {
        self.purchases().map_or(Self::Observe, |purchases| Self::FindHolder(purchases, refused))
    }

    /// Returns the aim once a purchase is requested. It is the one that a change of the object has allowed: there is no second one.
    pub(super) fn purchasing(&self) -> Self {
        match self.purchases() {
            None => Self::Observe,
            Some(Purchases::ByPolicy | Purchases::AlsoAfterRejection) => Self::Manage(Purchases::ByPolicy),
            Some(Purchases::OnlyStored) => Self::Manage(Purchases::OnlyStored),
        }
    }

    /// Whether the poll may buy in place of a booking that is lost, if the ticket's `rebookPolicy` allows it.
    pub(super) fn may_replace_lost(&self) -> bool {
        matches!(self.purchases(), Some(Purchases::ByPolicy | Purchases::AlsoAfterRejection))
    }

    /// Whether the poll may buy in place of a booking that the airline has rejected.
    pub(super) fn may_replace_rejected(&self) -> bool {
        self.purchases() == Some(Purchases::AlsoAfterRejection)
    }

    /// Returns which purchases the poll may make; `None` if the ticket only observes.
    fn purchases(&self) -> Option<Purchases> {
        match self {
            Self::Observe | Self::SeekLaterBooking => None,
            Self::Manage(purchases) | Self::LookAgain(purchases) | Self::FindHolder(purchases, _) => Some(*purchases),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{samples, status, ticket::RETRY};

    /// All aims with the purchases that go with them.
    fn all() -> Vec<Aim> {
        let managing = [Purchases::ByPolicy, Purchases::AlsoAfterRejection, Purchases::OnlyStored].map(Aim::Manage);
        let looking = managing.each_ref().map(Aim::looking_again);
        let finding = managing.each_ref().map(|aim| aim.finding_holder(status::not_booked()));
        [Aim::Observe, Aim::SeekLaterBooking].into_iter().chain(managing).chain(looking).chain(finding).collect()
    }

    #[test]
    fn aim_follows_from_the_ticket() {
        let own = json!({"bookingId": "BK-1", "reference": samples::UID});
        let settled = json!({"bookingId": "BK-1", "reference": samples::UID, "settled": "of an earlier generation"});
        let only_settled = json!({"settled": "of an earlier generation"});
        let named = json!({"annotations": {BOOKING_ID: "BK-2", RETRY: "1"}});
        let observing = json!({"managementPolicy": "Observe"});
        for (spec, metadata, status, expected) in [
            (json!({}), json!({}), json!({}), Aim::Manage(Purchases::ByPolicy)),
            (json!({}), json!({}), only_settled.clone(), Aim::Manage(Purchases::AlsoAfterRejection)),
            (json!({}), named.clone(), json!({}), Aim::Manage(Purchases::OnlyStored)),
            // A retry is no reason to buy in place of what a user names.
            (json!({}), named.clone(), only_settled, Aim::Manage(Purchases::OnlyStored)),
            // A booking of its own counts for more than the annotation.
            (json!({}), named.clone(), own, Aim::Manage(Purchases::ByPolicy)),
            (json!({}), named.clone(), settled.clone(), Aim::Manage(Purchases::AlsoAfterRejection)),
            (observing, named, settled, Aim::Observe),
        ] {
            let ticket = samples::with(&json!({"spec": spec, "metadata": metadata, "status": status}));
            assert_eq!(Aim::of(&ticket), expected, "{:?}", ticket.status);
        }
    }

    /// Whatever a poll looks for, it may buy no more than before.
    #[test]
    fn no_search_allows_another_purchase() {
        for aim in all() {
            for next in [aim.managing(), aim.looking_again(), aim.finding_holder(status::not_booked())] {
                assert_eq!(next.purchases(), aim.purchases(), "{aim:?}");
            }
        }
    }

    #[test]
    fn purchase_ends_the_search_and_the_retry() {
        for aim in all() {
            let next = aim.purchasing();
            assert!(matches!(next, Aim::Observe | Aim::Manage(_)) && !next.may_replace_rejected(), "{aim:?}");
            assert_eq!(next.may_replace_lost(), aim.may_replace_lost(), "{aim:?}");
        }
    }

    #[test]
    fn only_named_booking_is_not_replaced() {
        let named = Aim::only_named();
        let searches = [named.looking_again(), named.finding_holder(status::not_booked())];
        for aim in searches.into_iter().chain([named.purchasing(), named]) {
            assert!(!aim.may_replace_lost() && !aim.may_replace_rejected(), "{aim:?}");
        }
        assert!(Aim::Manage(Purchases::ByPolicy).may_replace_lost());
        assert!(Aim::Manage(Purchases::AlsoAfterRejection).may_replace_rejected());
    }
}
