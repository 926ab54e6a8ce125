// Package opening looks at what the client of a TCP connection sends first: a PROXY header,
// a ClientHello, or the request of PostgreSQL for TLS. It decides nothing.
//
// Theory of operation. The bytes are peeked (MSG_PEEK), so they stay in the socket: the
// connection remains one of package net, and the kernel can move it as a whole to a server
// that terminates TLS itself. Only a PROXY header is read, byte for byte. The framing of a
// ClientHello, which may be divided between records and segments, is our own; its content is
// parsed by crypto/tls, so the gateway cannot understand a server name differently before and
// during the handshake. All sizes have limits; the caller sets the deadline of the connection.
package opening
