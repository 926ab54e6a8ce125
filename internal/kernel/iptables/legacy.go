package iptables

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unsafe"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// legacyTable caches a filter table of iptables-legacy. The kernel sends no events
// for such tables, so changes are detected by the hash.
type legacyTable struct {
	hash   uint64
	chains rules.Ruleset
}

// legacyFilter reads the filterChains of a table of iptables-legacy.
func (h *Handle) legacyFilter(v4 bool) (chains rules.Ruleset, err error) {
	hash, err := h.FilterHash(v4)
	if err != nil || hash == 0 {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last := &h.legacy[family46(v4)]
	if last.hash == hash {
		return last.chains, nil
	}
	program, err := iptables(plan.Firewall{V4: v4, Legacy: true}, "save")
	if err != nil {
		return nil, nil // without the program nothing can change the table
	}
	err = h.ns.Do(func() error {
		out, err := exec.Command(program, "-t", "filter").Output()
		if err != nil {
			return fmt.Errorf("run %s: %w", program, err)
		}
		chains = rules.Saved(filterFamily(v4), string(out))
		return nil
	})
	chains = slices.DeleteFunc(chains, func(c rules.Chain) bool { return !slices.Contains(filterChains, c.Name) })
	if err == nil {
		*last = legacyTable{hash, chains}
	}
	return chains, err
}

func family46(v4 bool) int {
	if v4 {
		return 0
	}
	return 1
}

// FilterHash is LegacyHash for the filter table.
func (h *Handle) FilterHash(v4 bool) (uint64, error) { return h.LegacyHash(v4, "filter") }

// LegacyHash returns a hash of the rules in the named tables of iptables-legacy, or in all if none is named, without
// their counters. It returns 0 if there are no such tables.
func (h *Handle) LegacyHash(v4 bool, only ...string) (hash uint64, err error) {
	err = h.ns.Do(func() error {
		// Reading a table that does not exist would create it.
		names, err := os.ReadFile("/proc/thread-self/net/" + filterFamily(v4) + "_tables_names")
		if err != nil {
			return nil
		}
		for _, table := range strings.Fields(string(names)) {
			if len(only) > 0 && !slices.Contains(only, table) {
				continue
			}
			entries, err := legacyEntries(v4, table)
			if err != nil {
				return fmt.Errorf("read the %s table of iptables-legacy: %w", table, err)
			}
			hash = hash*31 + hashEntries(v4, entries)
		}
		return nil
	})
	return hash, err
}

// The socket options of iptables, and the layout of the returned structs
// (linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h).
const (
	getInfo, getEntries     = 64, 65
	infoSize, infoBytes     = 84, 80
	entriesSize, entriesAll = 32, 40
)

// legacyEntries returns the rules of a table in the kernel's binary form.
func legacyEntries(v4 bool, table string) ([]byte, error) {
	domain, level := unix.AF_INET6, unix.IPPROTO_IPV6
	if v4 {
		domain, level = unix.AF_INET, unix.IPPROTO_IP
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for range 10 {
		info := make([]byte, infoSize)
		copy(info, table)
		if err := getsockopt(fd, level, getInfo, info); err != nil {
			return nil, err
		}
		size := binary.NativeEndian.Uint32(info[infoBytes:])
		all := make([]byte, entriesAll+size)
		copy(all, table)
		binary.NativeEndian.PutUint32(all[entriesSize:], size)
		if err = getsockopt(fd, level, getEntries, all); err == nil {
			return all[entriesAll:], nil
		}
	}
	return nil, err // the table changed during each attempt
}

func getsockopt(fd, level, option int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}

// hashEntries hashes rules without their counters, which change with every packet.
func hashEntries(v4 bool, entries []byte) uint64 {
	// Offsets in struct ipt_entry or ip6t_entry: next_offset, the counters, and the
	// end of the header.
	next, counters, header := 142, 144, 168
	if v4 {
		next, counters, header = 90, 92, 112
	}
	hash := fnv.New64a()
	for len(entries) >= header {
		length := int(binary.NativeEndian.Uint16(entries[next:]))
		if length < header || length > len(entries) {
			break
		}
		hash.Write(entries[:counters])
		hash.Write(entries[header:length])
		entries = entries[length:]
	}
	return hash.Sum64() | 1
}
