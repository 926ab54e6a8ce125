package proxy

import (
	"fairlead/internal/kernel/localaddr"
	"fairlead/internal/model"
)

// The proxy sends answers from its published ports. A datagram from the address and
// port of one of its own sockets is therefore an answer to another forged datagram,
// or forged itself. If both targets answer whatever they get, one such datagram would
// go in circles for ever. No other program can have bound that address and port. Other
// sources are not refused: a client may use the number of a published port as its own.

// isOurs reports whether one of the proxy's sockets has the client's address and
// port. If the kernel does not say whether the address is the host's, isOurs returns
// true: the client asks again, and a loop would not end.
func (w *worker) isOurs(client sockaddr) bool {
	at := client.addrPort()
	if !w.bound.Load().has(socketKey{model.UDP, at}) {
		return false
	}
	local, err := localaddr.Has(at.Addr())
	return local || err != nil
}

// has reports whether a socket has the key's address and port.
func (w *wanted) has(key socketKey) bool {
	_, same := w.places[key]
	return same || w.covered(key)
}
