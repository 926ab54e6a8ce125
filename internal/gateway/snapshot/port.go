package snapshot

import (
	"net"
	"strings"
)

// PortOf returns the port of an entry point's address, HOST:PORT/PROTOCOL.
func PortOf(address string) string {
	address, _, _ = strings.Cut(address, "/")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return port
}
