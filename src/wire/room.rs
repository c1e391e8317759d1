use std::ops::Deref;

/// Bytes of one thing after the other, in room that is used again, and that does not stay large for one large
/// thing: it halves after so many in a row that would have fitted into a quarter.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    /// How many in a row have left three quarters of it empty.
    small: u32,
}

impl Room {
    /// It halves after so many: often enough to be small soon, seldom enough that it costs nothing.
    const PATIENCE: u32 = 64;

    /// What is not worth giving back.
    const KEEP: usize = 16 << 10;

    /// To write the one that is at hand into.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Done with that one: the room is for the next.
    pub(crate) fn clear(&mut self) {
        let length = self.bytes.len();
        self.bytes.clear();
        let capacity = self.bytes.capacity();
        if capacity <= Self::KEEP || length > capacity / 4 {
            self.small = 0;
            return;
        }
        self.small += 1;
        if self.small == Self::PATIENCE {
            self.small = 0;
            self.bytes.shrink_to((capacity / 2).max(Self::KEEP));
        }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(room: &mut Room, length: usize) {
        room.bytes().resize(length, b'x');
        room.clear();
    }

    #[test]
    fn what_a_large_one_has_taken_is_given_back_step_by_step() {
        let mut room = Room::default();
        hold(&mut room, 1 << 20);
        for _ in 1..Room::PATIENCE {
            hold(&mut room, 6_000);
        }
        assert_eq!(room.bytes.capacity(), 1 << 20, "another large one may come");
        hold(&mut room, 6_000);
        assert_eq!(room.bytes.capacity(), 1 << 19);
        for _ in 0..100 * Room::PATIENCE {
            hold(&mut room, 6_000);
        }
        assert_eq!(
            room.bytes.capacity(),
            6_000_usize.max(Room::KEEP).next_power_of_two()
        );
    }

    #[test]
    fn one_that_takes_more_than_a_quarter_now_and_then_keeps_it() {
        let mut room = Room::default();
        for _ in 0..10 {
            hold(&mut room, 1 << 20);
            for _ in 1..Room::PATIENCE {
                hold(&mut room, 6_000);
            }
            hold(&mut room, (1 << 18) + 1);
        }
        assert_eq!(room.bytes.capacity(), 1 << 20);
    }

    #[test]
    fn what_is_small_stays() {
        let mut room = Room::default();
        hold(&mut room, Room::KEEP);
        for _ in 0..10 * Room::PATIENCE {
            hold(&mut room, 1);
        }
        assert_eq!(room.bytes.capacity(), Room::KEEP);
    }
}
