//! The C kernel's stress test: 5,000 random operations of 1 to 3,000 bytes, each block's pattern checked before it is freed.

use heap::block_size;
use proptest::prelude::*;

use crate::common::{MEMORY, allocate, assert_all_back, heap, whole};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn blocks_keep_their_content_through_5000_operations(
        operations in proptest::collection::vec((1..=3000_usize, any::<prop::sample::Index>()), 5000)
    ) {
        let (mut heap, memory) = heap(usize::MAX);
        let mut content = vec![0_u8; MEMORY.len()];
        let mut live: Vec<(usize, usize, u8)> = Vec::new();
        for (step, (size, index)) in operations.into_iter().enumerate() {
            // Frees as often as it allocates once there are about 256 blocks.
            if index.index(512) < live.len() {
                let (block, size, pattern) = live.swap_remove(index.index(live.len()));
                let bytes = &mut content[block - MEMORY.start..][..block_size(whole(size))];
                prop_assert!(bytes.iter().all(|byte| *byte == pattern), "{block:#x}, {size}");
                bytes.fill(0xDD);
                heap.free(block, whole(size)).unwrap();
            } else {
                let block = allocate(&mut heap, whole(size)).unwrap();
                let pattern = step as u8;
                content[block - MEMORY.start..][..block_size(whole(size))].fill(pattern);
                live.push((block, size, pattern));
            }
        }
        for (block, size, pattern) in live {
            let bytes = &content[block - MEMORY.start..][..block_size(whole(size))];
            prop_assert!(bytes.iter().all(|byte| *byte == pattern), "{block:#x}, {size}");
            heap.free(block, whole(size)).unwrap();
        }
        assert_all_back(&mut heap, &memory);
    }
}
