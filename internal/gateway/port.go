package gateway

import (
	"net"
	"strings"
)

// portOfAddress returns the port of an entry point's address, HOST:PORT/PROTOCOL.
func portOfAddress(address string) string {
	address, _, _ = strings.Cut(address, "/")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return port
}
