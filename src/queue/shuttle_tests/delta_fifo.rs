//! Tests of [`DeltaFifo`](crate::queue::DeltaFifo) without known objects. The interleaving tests of
//! informers cover queues with known objects.

use super::Guarantee::{InOrderPerKey, Newest};
use super::delta_fifo;
use crate::base::sync::check;

#[test]
fn every_pop_gets_an_item() {
    check(|| super::every_pop_gets_an_item(delta_fifo(), false, InOrderPerKey));
}

#[test]
fn every_pop_gets_an_item_of_a_list() {
    check(|| super::every_pop_gets_an_item(delta_fifo(), true, InOrderPerKey));
}

#[test]
fn every_item_wakes_a_pop() {
    check(|| super::every_item_wakes_a_pop(delta_fifo(), InOrderPerKey));
}

#[test]
fn close_at_any_point_loses_no_item() {
    check(|| super::close_at_any_point_loses_no_item(delta_fifo(), InOrderPerKey));
}

#[test]
fn requeued_items_keep_the_guarantee() {
    check(|| super::requeued_items_keep_the_guarantee(delta_fifo(), Newest));
}

#[test]
fn process_callback_can_add_items() {
    check(|| super::callback_can_add_items(delta_fifo(), InOrderPerKey));
}
