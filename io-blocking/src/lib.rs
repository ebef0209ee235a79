//! cmid with the face of std::net: blocking calls with deadlines and cancellation.
