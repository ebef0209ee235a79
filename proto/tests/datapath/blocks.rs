//! Pools, parts, and the record of a queue.

use core::ops::Range;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{
    Access, Completion, Length, Lent, Part, Parts, Pool, PostReason, Remote, Returns, WcStatus, prelude::*, zeros,
};
use cmid_proto::memory::MemoryError;
use cmid_sim::Piece;

use crate::device::bound;

fn pool(blocks: usize) -> Pool<Piece> {
    let (mut drive, id) = bound();
    drive.device_mut().alloc_pd(id).unwrap().pool(zeros(blocks, 8).unwrap(), 8, Access::empty()).unwrap()
}

fn one(pool: &Pool<Piece>) -> Parts<Piece> {
    pool.take().unwrap().into()
}

fn done(wr_id: u64) -> Completion {
    Completion { wr_id, ..Completion::default() }
}

/// The requests below this number are over.
fn below(over: u64) -> impl Fn(u64) -> bool {
    move |number| number < over
}

/// A size of an application or a peer is an error, and not the end of the process.
#[test]
fn memory_that_nobody_has_is_refused() {
    let text = |error: MemoryError| error.to_string();
    let refused = |bytes: usize| Err(format!("refused: register an MR: {bytes} bytes cannot be allocated"));
    assert_eq!(zeros(usize::MAX, 2).map_err(text), refused(usize::MAX));
    assert_eq!(zeros(1 << 40, 1 << 20).map_err(text), refused(1 << 60));
    assert_eq!(zeros(1 << 40, 1 << 20).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(zeros(0, usize::MAX), Ok(vec![]));
    assert_eq!(zeros(2, 3), Ok(vec![0; 6]));
    assert!(Pool::<Piece>::of(1 << 56, []).is_err_and(|error| error.errno() == Errno::ENOMEM));
}

#[test]
fn a_pool_gets_its_blocks_back_from_every_thread() {
    let pool = pool(2);
    assert_eq!((pool.blocks(), pool.block_len(), pool.available()), (2, 8, 2));
    assert_eq!(format!("{pool:?}"), "Pool { blocks: 2, block_len: 8, .. }");
    let (mut first, second) = (pool.take().unwrap(), pool.take().unwrap());
    assert!(pool.take().is_none());
    first[7] = 9;
    let handle = pool.clone();
    let thread = std::thread::spawn(move || {
        drop(first);
        handle.available()
    });
    assert_eq!(thread.join().unwrap(), 1);
    assert_eq!(pool.take().unwrap()[7], 9, "a block is not cleared");
    let Remote { addr, rkey } = second.remote(0);
    assert_eq!(second.remote(3), Remote { addr: addr + 3, rkey });
    drop(pool);
    assert_eq!(second.len(), 8, "a block outlives its pool");
    assert_eq!(format!("{second:?}"), "Block { len: Some(8), .. }");
}

fn place(part: &Part<Piece>, writes: bool) -> Result<Range<usize>, PostReason> {
    part.place(writes).map(|(_, range)| range)
}

#[test]
fn a_part_knows_its_range_and_what_is_wrong_with_it() {
    let pool = pool(3);
    let part = |range| pool.take().unwrap().part(range);
    assert_eq!((part(2..5).len(), part(2..5).range(), place(&part(8..8), true)), (3, 2..5, Ok(8..8)));
    let beyond = Err(PostReason::OutOfRange { len: Length::new(8) });
    for range in [0..9, 9..9, 0..usize::MAX, usize::MAX..usize::MAX, 1 << 32..1 << 32] {
        assert_eq!((place(&part(range.clone()), false), part(range).len()), (beyond.clone(), 0));
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    for range in [5..2, usize::MAX..0] {
        assert_eq!(place(&part(range), false), Err(PostReason::ReversedRange));
    }
    let shared = Arc::new(pool.take().unwrap());
    let mut part = Part::shared(Arc::clone(&shared), 1..4);
    assert_eq!((place(&part, false), place(&part, true)), (Ok(1..4), Err(PostReason::SharedBlock)));
    assert_eq!((part.range(), part.block_mut().is_none()), (1..4, true));
    assert_eq!(place(&Part::shared(Arc::clone(&shared), 1..8), true), Err(PostReason::SharedBlock));
    assert_eq!(format!("{part:?}"), "Part { range: 1..4, is_shared: true }");
    assert_eq!(part.block().len(), 8);
    assert!(part.into_block().is_none());
    let whole = Parts::from(Arc::clone(&shared));
    assert_eq!(format!("{whole:?}"), "[Part { range: 0..8, is_shared: true }]");
    assert!(whole.into_block().is_none());
    drop(shared);
    // The block forgets the range of its last part.
    assert_eq!(Part::from(pool.take().unwrap().part(1..2).into_block().unwrap()).range(), 0..8);
}

#[test]
fn parts_are_one_or_several() {
    let pool = pool(3);
    let mut several: Parts<Piece> = (1..3).map(|len| pool.take().unwrap().part(0..len)).collect();
    assert_eq!(several.iter().map(|part| part.len()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(AsRef::<[Part<Piece>]>::as_ref(&several).len(), 2);
    several.as_mut_slice()[1].block_mut().unwrap().piece_mut().unwrap()[0] = 7;
    assert_eq!(several.into_blocks().map(|block| block[0]).collect::<Vec<_>>(), [0, 7]);
    let shared = Part::from(Arc::new(pool.take().unwrap()));
    let mixed = Parts::from(vec![shared, pool.take().unwrap().into()]);
    assert!(mixed.into_block().is_some());
    assert_eq!((one(&pool).len(), one(&pool).into_block().is_some()), (1, true));
    assert_eq!(pool.available(), 3);
}

#[test]
fn what_is_over_comes_back_in_the_order_of_the_posts() {
    let (pool, mut lent) = (pool(4), Lent::new(4));
    assert!(!lent.has_place(), "it has no memory yet");
    assert_eq!(lent.check_room(4, below(0)), Ok(()));
    for number in 0..4 {
        assert!(lent.has_place());
        lent.lend(number, number / 2, Returns::ByCompletion, one(&pool));
    }
    assert!(!lent.has_place());
    assert_eq!((lent.is_empty(), pool.available()), (false, 0));
    assert!(lent.reclaim(&done(0), below(0)).is_none(), "in flight");
    assert!(
        lent.reclaim(&done(7), below(4)).is_none() && lent.reclaim(&done(7), below(0)).is_none(),
        "no such request"
    );
    assert_eq!(format!("{lent:?}"), "Lent { requests: 4, .. }");
    // The first one is taken last.
    assert!(lent.reclaim(&done(1), below(4)).is_some() && lent.reclaim(&done(0), below(4)).is_some());
    assert!(lent.reclaim(&done(1), below(4)).is_some() && lent.reclaim(&done(1), below(4)).is_none());
    assert!(lent.reclaim(&done(0), below(4)).is_some() && lent.is_empty());
    assert_eq!(pool.available(), 4);
}

#[test]
fn the_record_goes_round_and_keeps_the_order_of_the_posts() {
    // Each round leaves the ring elsewhere, with a request in the middle that is taken first.
    let (pool, mut lent) = (pool(5), Lent::new(3));
    let tagged = |tag| {
        let mut block = pool.take().unwrap();
        block[0] = tag;
        Parts::from(block)
    };
    let tag = |parts: Option<Parts<Piece>>| parts.and_then(Parts::into_block).map(|block| block[0]);
    for round in 0..100 {
        let first = 3 * u64::from(round);
        for (at, wr_id) in [7, 8, 7].into_iter().enumerate() {
            assert_eq!(lent.check_room(1, below(0)), Ok(()));
            lent.lend(first + at as u64, wr_id, Returns::ByCompletion, tagged(round + at as u8));
        }
        assert_eq!(lent.check_room(1, below(first + 3)), Err(PostReason::NotReclaimed { max: 3 }));
        assert_eq!(lent.check_room(0, below(first + 3)), Ok(()), "nothing needs no room");
        let order = [8, 7, 7].map(|wr_id| tag(lent.reclaim(&done(wr_id), below(first + 3))));
        assert_eq!(order, [1, 0, 2].map(|at| Some(round + at)));
        assert!(lent.is_empty() && pool.available() == 5);
    }
    // A post that is refused gives the place up. One that the device may have keeps it.
    assert_eq!(lent.check_room(3, below(0)), Ok(()));
    for number in 0..3 {
        assert_eq!(lent.lend(number, 7, Returns::ByCompletion, tagged(number as u8)).len(), 1);
    }
    assert_eq!((tag(lent.take_back()), tag(lent.take_back())), (Some(2), Some(1)));
    lent.note_refused(1);
    assert_eq!((lent.is_empty(), pool.available()), (false, 4));
    assert!(lent.reclaim(&done(7), below(2)).is_none());
    assert_eq!((lent.check_room(3, below(2)), pool.available()), (Ok(()), 5));
}

#[test]
fn the_blocks_of_all_requests_that_a_device_has_refused_return_to_their_pools() {
    let (pool, mut lent) = (pool(3), Lent::new(3));
    assert_eq!(lent.check_room(3, below(0)), Ok(()));
    for number in 0..3 {
        lent.lend(number, 5, Returns::ByCompletion, one(&pool));
    }
    lent.note_refused(2);
    assert!(lent.reclaim(&done(5), below(3)).is_some(), "the first one was not refused");
    assert_eq!((lent.check_room(3, below(3)), pool.available()), (Ok(()), 3));
}

#[test]
fn a_block_that_was_a_part_is_whole_again() {
    let pool = pool(1);
    let block = Parts::from(pool.take().unwrap().part(2..5)).into_block().unwrap();
    let part = Part::from(block);
    assert_eq!((part.range(), place(&part, true), part.len()), (0..8, Ok(0..8), 8));
}

#[test]
fn blocks_that_nobody_reclaims_return_to_their_pools() {
    let (pool, mut lent) = (pool(4), Lent::new(4));
    assert_eq!(lent.check_room(4, below(0)), Ok(()));
    lent.lend(0, 5, Returns::OnFailure, one(&pool));
    lent.lend(1, 5, Returns::ToPool, one(&pool));
    lent.lend(2, 5, Returns::ByCompletion, one(&pool));
    let failed = Completion { status: WcStatus::WR_FLUSH_ERR, ..done(5) };
    assert!(lent.reclaim(&failed, below(1)).is_some(), "the first one has failed");
    assert!(lent.reclaim(&done(5), below(3)).is_some(), "what was refused is not returned");
    assert_eq!((lent.is_empty(), pool.available()), (true, 4));

    lent.lend(3, 5, Returns::OnFailure, one(&pool));
    assert!(lent.reclaim(&Completion { wr_id: 6, ..failed }, below(4)).is_none(), "that of another request");
    assert_eq!(pool.available(), 4);

    lent.lend(3, 5, Returns::OnFailure, one(&pool));
    lent.lend(4, 5, Returns::ByCompletion, one(&pool));
    assert!(lent.reclaim(&done(5), below(5)).is_some());
    assert_eq!(pool.available(), 4, "the success is that of the later request");

    for number in 5..9 {
        lent.lend(number, number, if number < 7 { Returns::OnFailure } else { Returns::ByCompletion }, one(&pool));
    }
    assert_eq!(lent.check_room(1, below(5)), Err(PostReason::NotReclaimed { max: 4 }));
    assert_eq!((lent.check_room(2, below(9)), pool.available()), (Ok(()), 2), "a post needs the room");
    assert_eq!(lent.check_room(3, below(9)), Err(PostReason::NotReclaimed { max: 4 }));
    drop(lent);
    assert_eq!(pool.available(), 4);
}
