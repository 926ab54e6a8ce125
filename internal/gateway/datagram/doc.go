// Package datagram serves UDP routers: it forwards the datagrams of each client to a server, and
// the server's back.
//
// Theory of operation. Datagrams have no connection, so a session stands for one: a client's
// address, the local address that it sent to, and a socket that is connected to the server. One
// goroutine per entry point reads the clients' datagrams; one per session waits for the server's,
// without a buffer. A session ends when it is silent for the entry point's timeout.
//
// Anyone can forge a client's address. So the number of sessions has a limit: a new one replaces
// the oldest, first of those that the server has not answered. A datagram that cannot be sent at
// once is dropped, as UDP permits.
//
// Sessions survive changes of the configuration. If their server is removed, only its own
// datagrams keep them alive.
package datagram
