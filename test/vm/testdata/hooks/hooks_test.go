// Package hooks_test runs in a guest, started by the tests of package vm. It attaches eBPF programs to hooks of
// netfilter. The kernel does not report their namespaces, so on the host they would be a reason against ebpf for the
// networks of other tests.
package hooks_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rules"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// TestHookPrograms: a program at a hook that outbound connections bypass may decide. One at another
// hook, or for IPv6, does not. Both its begin and its end are reported.
func TestHookPrograms(t *testing.T) {
	ns := kerneltest.Netns(t)
	h, err := kernel.Open(ns.Path(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := h.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	decides := func(when, want string, changed bool) {
		t.Helper()
		w.Check()
		select {
		case <-w.RulesChanged():
			if !changed {
				t.Errorf("%s: a change is reported", when)
			}
		default:
			if changed {
				t.Errorf("%s: no change is reported", when)
			}
		}
		path := rules.Path{Senders: netip.MustParsePrefix("172.30.0.0/24"), Router: "fl-net"}
		why, err := h.Deciders(t.Context(), []rules.Path{path})
		if err != nil || (why[0].Text == "") != (want == "") || !strings.Contains(why[0].Text, want) {
			t.Errorf("%s: %v, %v, want %q", when, why, err, want)
		}
	}
	kerneltest.Run(t, ns, "sh", "-ec", "ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up")
	w.PollRules(true)
	decides("no program", "", false)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, c := range []struct {
		name   string
		family link.NetfilterProtocolFamily
		hook   link.NetfilterInetHook
		want   string
	}{
		{"before routing", link.NetfilterProtoIPv4, link.NetfilterInetPreRouting, "hook prerouting of netfilter"},
		{"forwarded packets", link.NetfilterProtoIPv4, link.NetfilterInetForward, "hook forward of netfilter"},
		{"after routing", link.NetfilterProtoIPv4, link.NetfilterInetPostRouting, "hook postrouting of netfilter"},
		{"packets to the host", link.NetfilterProtoIPv4, link.NetfilterInetLocalIn, ""},
		{"forwarded packets over IPv6", link.NetfilterProtoIPv6, link.NetfilterInetForward, ""},
	} {
		var l link.Link
		if err := ns.Do(func() (err error) {
			l, err = link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: c.family,
				Hook: c.hook, Priority: -10})
			return err
		}); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		decides(c.name, c.want, c.want != "")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		decides("without the program for "+c.name, "", c.want != "")
	}
}
