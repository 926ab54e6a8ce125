// Package h1 serves requests of clients by HTTP/1.1 (RFC 9112). Package forward sends requests to servers, and wire has
// what both read and write. All use the types of net/http, so that handlers are the same for every version of HTTP.
// HTTP/2, TLS handshakes and routing are not done here.
//
// # Theory of operation
//
// A request costs no goroutine, no timer and few allocations. The goroutine of a client's connection
// reads a request, runs the handler, and so also writes the request to the server and reads the
// response. A second goroutine runs only while a request's body arrives that is too long to be read
// first.
//
// Connections hold a buffer only from the first byte that is readable until the last one is consumed
// (see wire.Input). A connection that waits for seconds has no goroutine either: it is parked in an epoll set,
// and gets a new goroutine when it is readable (park.go, serve.go). Bodies pass from that buffer to the other side's
// socket; long bodies between two TCP connections are spliced by the kernel (net.TCPConn.ReadFrom).
//
// Deadlines are not set per request. One goroutine per pool and per server inspects all connections
// about once a second: it closes idle connections, interrupts those whose request was cancelled or
// is too slow, and detects clients that have gone while their handler runs. All durations therefore
// have a granularity of about a second.
package h1
