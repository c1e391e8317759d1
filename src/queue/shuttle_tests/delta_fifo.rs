//! Tests of [`DeltaFifo`](crate::queue::DeltaFifo) without known objects. The tests of informers
//! cover those.

use super::Promise::EachOfAKey;
use super::delta_fifo;
use crate::sync::check;

#[test]
fn every_pop_gets_an_item() {
    check(|| super::every_pop_gets_an_item(delta_fifo(), false, EachOfAKey));
}

#[test]
fn every_pop_gets_an_item_of_a_list() {
    check(|| super::every_pop_gets_an_item(delta_fifo(), true, EachOfAKey));
}

#[test]
fn every_item_wakes_a_pop() {
    check(|| super::every_item_wakes_a_pop(delta_fifo(), EachOfAKey));
}

#[test]
fn a_close_at_any_point_loses_nothing() {
    check(|| super::a_close_at_any_point_loses_nothing(delta_fifo(), EachOfAKey));
}

#[test]
fn what_is_put_back_keeps_the_promise() {
    check(|| super::what_is_put_back_keeps_the_promise(delta_fifo(), EachOfAKey));
}

#[test]
fn a_callback_may_add() {
    check(|| super::a_callback_may_add(delta_fifo(), EachOfAKey));
}
