//! Prints the tree with the first sentence of each file's head; pure files have a `=`.

use rules::House;

fn main() {
    for line in House::read().tree() {
        println!("{line}");
    }
}
