package proxy

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

func TestHeaderBytes(t *testing.T) {
	v4 := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:256"), netip.MustParseAddrPort("198.51.100.2:80")}
	v6 := [2]netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:256"), netip.MustParseAddrPort("[2001:db8::2]:80")}
	const signature = "\r\n\r\n\x00\r\nQUIT\n"
	for _, c := range []struct {
		name    string
		version int
		addrs   [2]netip.AddrPort
		want    string
	}{
		{"v1 over IPv4", 1, v4, "PROXY TCP4 192.0.2.1 198.51.100.2 256 80\r\n"},
		{"v1 over IPv6", 1, v6, "PROXY TCP6 2001:db8::1 2001:db8::2 256 80\r\n"},
		{"v2 over IPv4", 2, v4, signature + "\x21\x11\x00\x0c" + "\xc0\x00\x02\x01" + "\xc6\x33\x64\x02" +
			"\x01\x00\x00\x50"},
		{"v2 over IPv6", 2, v6, signature + "\x21\x21\x00\x24" +
			"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
			"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x01\x00\x00\x50"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(appendHeader(nil, c.version, c.addrs[0], c.addrs[1])); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestHeaderPrecedesStream sends headers through a proxy, also to a target of the
// other family: the header has the addresses of the client's side.
func TestHeaderPrecedesStream(t *testing.T) {
	for _, c := range []struct{ name, host, dial, target, family, dst string }{
		{"IPv4", "0.0.0.0", "10.77.0.1:8001", "127.0.0.1", "TCP4", "10.77.0.1"},
		{"IPv6 client, IPv4 target", "::", "[fd00:77::1]:8001", "127.0.0.1", "TCP6", "fd00:77::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxy(t, Role)
			l := published(model.TCP, c.host, 8001, serveTCP(t, c.target, echo))
			l.ProxyProtocol = 1
			set(t, p, Config{Listeners: []plan.Listener{l}})
			conn := dial(t, c.dial)
			if _, err := io.WriteString(conn, "hello"); err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseWrite()
			src := conn.LocalAddr().(*net.TCPAddr)
			want := fmt.Sprintf("PROXY %s %s %s %d 8001\r\nhello", c.family, src.IP, c.dst, src.Port)
			if got, err := io.ReadAll(conn); err != nil || string(got) != want {
				t.Errorf("target got %q (%v), want %q", got, err, want)
			}
		})
	}
}
