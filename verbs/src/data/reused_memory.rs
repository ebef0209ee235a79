//! Memory of objects that are created and destroyed in turns, such as QPs. That of destroyed ones is kept for new ones:
//! the provider allocates objects of other sizes in between, and the heap would split and merge blocks each time.

use core::mem::MaybeUninit;
use core::ptr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The maximum number of destroyed objects with kept memory.
const KEPT_MAX: usize = 64;

/// The kept memory of destroyed objects.
pub(super) struct ReusedMemory<T>(Mutex<Vec<Memory<T>>>);

/// Memory for one object. It has one owner.
pub(super) struct Memory<T>(Arc<MaybeUninit<T>>);

impl<T> ReusedMemory<T> {
    pub(super) const fn new() -> Self {
        ReusedMemory(Mutex::new(Vec::new()))
    }

    /// Returns the memory of a destroyed object, or new memory.
    #[inline(always)]
    pub(super) fn take(&self) -> Memory<T> {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| Memory(Arc::new_uninit()))
    }

    /// Drops an owner of an object. The last owner destroys the object and keeps its memory. If two owners are dropped
    /// at the same time, the memory may be freed instead.
    #[inline]
    pub(super) fn reclaim(&self, mut object: Arc<T>) {
        if Arc::get_mut(&mut object).is_none() {
            return;
        }
        let raw = Arc::into_raw(object);
        // SAFETY: the pointer is of the only owner, as `get_mut` has shown, so no other code uses the object. It is
        // dropped once: from here on its memory is that of a `MaybeUninit`, which has the same layout and drops nothing.
        let place = unsafe {
            ptr::drop_in_place(raw.cast_mut());
            Memory(Arc::from_raw(raw.cast::<MaybeUninit<T>>()))
        };
        let mut kept = self.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(place);
        }
    }
}

impl<T> Memory<T> {
    /// Writes an object into it. A large one is built in place.
    #[inline(always)]
    pub(super) fn write(self, object: T) -> Arc<T> {
        let place = Arc::as_ptr(&self.0).cast_mut().cast::<T>();
        // SAFETY: the memory has one owner, so no other code uses it. It has the layout of the object, and contains it
        // from here on.
        unsafe {
            place.write(object);
            self.0.assume_init()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts its drops.
    struct Counted<'a>(&'a Cell<usize>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn the_memory_of_a_destroyed_object_is_used_again() {
        let (drops, memory) = (Cell::new(0), ReusedMemory::new());
        let first = memory.take().write(Counted(&drops));
        let at = Arc::as_ptr(&first);
        memory.reclaim(first);
        assert_eq!(drops.get(), 1);
        let second = memory.take().write(Counted(&drops));
        assert_eq!((Arc::as_ptr(&second), Arc::strong_count(&second)), (at, 1));
        let third = memory.take().write(Counted(&drops));
        assert_ne!(Arc::as_ptr(&third), at, "it is in use");
        drop((second, third));
        assert_eq!(drops.get(), 3);
    }

    #[test]
    fn an_object_with_another_owner_stays() {
        let (drops, memory) = (Cell::new(0), ReusedMemory::new());
        let object = memory.take().write(Counted(&drops));
        let other = Arc::clone(&object);
        memory.reclaim(object);
        assert_eq!((drops.get(), Arc::strong_count(&other)), (0, 1));
        assert_eq!(memory.0.lock().len(), 0);
        memory.reclaim(other);
        assert_eq!((drops.get(), memory.0.lock().len()), (1, 1));
    }

    #[test]
    fn the_kept_memory_is_limited() {
        let (drops, memory) = (Cell::new(0), ReusedMemory::new());
        let objects: Vec<_> = (0..=KEPT_MAX).map(|_| memory.take().write(Counted(&drops))).collect();
        objects.into_iter().for_each(|object| memory.reclaim(object));
        assert_eq!((drops.get(), memory.0.lock().len()), (KEPT_MAX + 1, KEPT_MAX));
    }
}
