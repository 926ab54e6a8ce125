// Package visitor loads a web site as visitors do: by a schedule that is made before
// the first visit. It has no part in building or balancing the site.
//
// # Theory of operation
//
// The process of the visitors makes the whole schedule from a seed: when each visit
// starts, which kind of visitor it is, and which page it opens. Then it starts every
// visit at its time, however many others are in progress. All times of a visit count
// from the intended start, so that a site that stalls does not hide the visits that
// it delays. Lateness is the delay of the process itself: from the intended start
// until the visit's first instruction.
//
// A crawler fetches all pages with their assets one after the other over one
// connection, as `wget --recursive` does. A browser fetches one page, then its assets
// over at most six connections of HTTP/1.1, or over one of HTTP/2. Every visit opens
// new connections with full TLS handshakes, and compares every byte of every body
// with the expected one. A visit that misses one byte has failed. No request is
// repeated.
//
// Beside the visitors, a probe fetches a small page ten times per second over a new
// connection, also by schedule.
package visitor
