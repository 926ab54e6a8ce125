package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// v2Signature opens every version 2 header.
const v2Signature = "\r\n\r\n\x00\r\nQUIT\n"

// appendHeader appends the PROXY protocol header of a version for a TCP
// connection from src to dst. They are the client's side of the proxy, so
// the family is the client's, whatever the target's is.
// https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
func appendHeader(b []byte, version int, src, dst netip.AddrPort) []byte {
	if version == 1 {
		family := "TCP6"
		if src.Addr().Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(b, "PROXY %s %s %s %d %d\r\n", family, src.Addr(), dst.Addr(), src.Port(), dst.Port())
	}
	const proxyCommand, tcp4, tcp6 = 0x21, 0x11, 0x21
	family := byte(tcp6)
	if src.Addr().Is4() {
		family = tcp4
	}
	b = append(b, v2Signature...)
	b = append(b, proxyCommand, family)
	b = binary.BigEndian.AppendUint16(b, uint16(2*(src.Addr().BitLen()/8+2)))
	b = append(b, src.Addr().AsSlice()...)
	b = append(b, dst.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	return binary.BigEndian.AppendUint16(b, dst.Port())
}
