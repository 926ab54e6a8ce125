package place

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"fairlead/test/shell"

	"golang.org/x/sys/unix"
)

// Advertise sends a router advertisement (RFC 4861, section 4.2) from a place to all nodes on
// the link: a default route of high preference, and a prefix for addresses.
func Advertise(t testing.TB, in Place, link string) {
	t.Helper()
	ra := []byte{134, 0, 0, 0, 5, 0x08, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}
	prefix := append([]byte{3, 4, 64, 0xc0}, make([]byte, 28)...)
	binary.BigEndian.PutUint32(prefix[4:], 86400)
	binary.BigEndian.PutUint32(prefix[8:], 86400)
	copy(prefix[16:], netip.MustParseAddr("2001:db8:bad::").AsSlice())
	mtu := []byte{5, 1, 0, 0, 0, 0, 0x05, 0x00}
	ra = append(append(ra, prefix...), mtu...)
	err := in(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
			return err
		}
		if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, link); err != nil {
			return err
		}
		all := &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16()}
		return unix.Sendto(fd, ra, 0, all)
	})
	if err != nil {
		t.Fatalf("send a router advertisement: %v", err)
	}
}

// AwaitRouter advertises a router from a place until a line of shell script succeeds in the other.
func AwaitRouter(t testing.TB, router Place, link string, host Place, line string) {
	t.Helper()
	shell.Run(t, router, "ip addr replace fe80::bad/64 dev "+link+" nodad")
	for deadline := time.Now().Add(Timeout); ; time.Sleep(10 * time.Millisecond) {
		Advertise(t, router, link)
		_, err := shell.Try(host, line)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the router's advertisements have no effect: %v", err)
		}
	}
}
