package nft

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// setFrames is EBT_SO_SET_ENTRIES.
const setFrames = 128

// frames writes the filter table of ebtables, as the program ebtables does, and returns the error:
// the policy of chain FORWARD, and rules that drop all frames to the host.
func frames(ns *netns.Namespace, policy int32, rules int) error {
	var list []byte
	table := frameTable{hooks: 1<<1 | 1<<2 | 1<<3, count: uint32(rules)}
	copy(table.name[:], "filter")
	at := map[int]int{}
	for hook, name := range []string{1: "INPUT", 2: "FORWARD", 3: "OUTPUT"} {
		if name == "" {
			continue
		}
		at[hook] = len(list)
		chain := make([]byte, chainLength)
		copy(chain[chainName:], name)
		binary.NativeEndian.PutUint32(chain[chainPolicy:], ^uint32(0))
		if name == "FORWARD" {
			binary.NativeEndian.PutUint32(chain[chainPolicy:], uint32(policy))
		}
		if name == "INPUT" {
			binary.NativeEndian.PutUint32(chain[chainPolicy+4:], uint32(rules))
			list = append(append(list, chain...), bytes.Repeat(dropFrames(), rules)...)
			continue
		}
		binary.NativeEndian.PutUint32(chain[chainPolicy-4:], uint32(rules)) // the rules before the chain
		list = append(list, chain...)
	}
	table.size, table.entryList = uint32(len(list)), unsafe.Pointer(&list[0])
	for hook, offset := range at {
		table.chains[hook] = uintptr(unsafe.Pointer(&list[offset]))
	}
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		info := frameTable{name: table.name}
		if err := getFrames(fd, frameInfo, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
			return err
		}
		counters := make([]uint64, 2*info.count+1)
		table.countersSize, table.countersList = info.count, unsafe.Pointer(&counters[0])
		_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, setFrames,
			uintptr(unsafe.Pointer(&table)), unsafe.Sizeof(table)+uintptr(table.size), 0)
		runtime.KeepAlive(list)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// dropFrames returns a rule without conditions and with the target DROP (struct ebt_entry and
// struct ebt_standard_target).
func dropFrames() []byte {
	const header, target, standard = 112, 40, 48
	rule := make([]byte, header+standard)
	native := binary.NativeEndian
	native.PutUint32(rule, 1|2) // EBT_ENTRY_OR_ENTRIES, EBT_NOPROTO
	for i, offset := range []uint32{header, header, header + standard} {
		native.PutUint32(rule[100+4*i:], offset)
	}
	copy(rule[header:], "standard")
	native.PutUint32(rule[header+32:], standard-target)
	native.PutUint32(rule[header+target:], ^uint32(1)) // EBT_DROP is -2
	return rule
}

// TestLegacyFrames: rules of ebtables may decide, and so may policies other than ACCEPT. Tables
// without either do not. A kernel without ebtables has none, whatever its modules are.
func TestLegacyFrames(t *testing.T) {
	ns := kerneltest.Netns(t)
	read := func() (text string) {
		t.Helper()
		if err := ns.Do(func() error { text = LegacyFrames(); return nil }); err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := read(); got != "" {
		t.Errorf("a new namespace: %q", got)
	}
	err := frames(ns, frameAccept, 0)
	if os.IsNotExist(err) || err != nil && strings.Contains(err.Error(), unix.ENOPROTOOPT.Error()) {
		t.Run("no ebtables", withoutFrames)
		return
	}
	for _, c := range []struct {
		name   string
		policy int32
		rules  int
		want   string
	}{
		{"an empty table", frameAccept, 0, ""},
		{"a rule", frameAccept, 1, "legacy ebtables has rules (tables filter)"},
		{"an empty table again", frameAccept, 0, ""},
		{"a policy", -2, 0, "legacy ebtables has rules (tables filter)"},
	} {
		if err := frames(ns, c.policy, c.rules); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := read(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// withoutFrames: without ebtables in the kernel, folders of modules are no tables.
func withoutFrames(t *testing.T) {
	loaded := modules
	t.Cleanup(func() { modules = loaded })
	modules = t.TempDir()
	if err := os.Mkdir(filepath.Join(modules, "ebtable_filter"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := LegacyFrames(); got != "" {
		t.Errorf("without ebtables: %q", got)
	}
}
