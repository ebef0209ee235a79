//! cmid on a hand-rolled epoll loop whose one fd nests in any other.
