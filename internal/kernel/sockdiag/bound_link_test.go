package sockdiag

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"fairlead/internal/kernel/kerneltest"

	"golang.org/x/sys/unix"
)

// TestListenerOfDeletedLink: a socket that is bound to a link which was deleted accepts packets of no link.
func TestListenerOfDeletedLink(t *testing.T) {
	ns := kerneltest.Netns(t)
	kerneltest.Run(t, ns, "ip", "link", "add", "eth7", "index", "77", "up", "type", "bridge")
	err := ns.Do(func() error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "eth7") })
			return errors.Join(failed, err)
		}}
		l, err := lc.Listen(t.Context(), "tcp4", ":80")
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	kerneltest.Run(t, ns, "ip", "link", "del", "eth7")
	if all, err := New(ns).Listeners(); err != nil || len(all) != 1 || all[0].Link != "if77" {
		t.Errorf("%+v, %v, want a listener on if77", all, err)
	}
}

// TestLinksOfListeners: the list says to which interface a socket is bound.
func TestLinksOfListeners(t *testing.T) {
	ns := kerneltest.Netns(t)
	kerneltest.Run(t, ns, "ip", "link", "add", "eth7", "up", "type", "bridge")
	want := map[string]string{"tcp": "eth7", "udp": "", "tcp6": ""}
	err := ns.Do(func() error {
		for network, link := range map[string]string{"tcp4": "eth7", "udp4": "", "tcp6": ""} {
			lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
				failed := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), link) })
				if failed != nil {
					return failed
				}
				return err
			}}
			if network == "udp4" {
				p, err := lc.ListenPacket(context.Background(), network, ":53")
				if err != nil {
					return err
				}
				t.Cleanup(func() { p.Close() })
				continue
			}
			l, err := lc.Listen(context.Background(), network, map[string]string{"tcp4": ":80", "tcp6": ":81"}[network])
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := New(ns).Listeners()
	if err != nil || len(all) != len(want) {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, l := range all {
		name := string(l.Proto)
		if l.At.Port() == 81 {
			name = "tcp6"
		}
		if l.Link != want[name] {
			t.Errorf("%s %s is bound to %q, want %q", name, l.At, l.Link, want[name])
		}
	}
}
