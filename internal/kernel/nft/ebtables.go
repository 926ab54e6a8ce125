package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// modules has a folder for each loaded module of the kernel.
var modules = "/sys/module"

// The socket options of legacy ebtables (linux/netfilter_bridge/ebtables.h: EBT_SO_GET_INFO,
// EBT_SO_GET_ENTRIES).
const frameInfo, frameEntries = 128, 129

// frameTable is the kernel's description of a table of legacy ebtables (struct ebt_replace).
type frameTable struct {
	name                    [32]byte
	hooks, count, size      uint32
	chains                  [6]uintptr
	countersSize            uint32
	countersList, entryList unsafe.Pointer
}

// Each chain of a table begins with a header (struct ebt_entries): its length, and the offsets of
// the chain's name and policy. The policy ACCEPT is -1.
const (
	chainLength, chainName, chainPolicy = 48, 4, 40
	frameAccept                         = -1
)

// frameTables are the tables of ebtables.
var frameTables = []string{"broute", "filter", "nat"}

// frameChains are the chains of ebtables with a hook.
var frameChains = []string{"BROUTING", "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// LegacyFrames describes the tables of legacy ebtables that may decide about frames: those with
// rules, or with a policy other than ACCEPT. Fairlead does not follow such rules. It is empty if
// there are none. The calling thread must be in the host's network namespace.
func LegacyFrames() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return unreadFrames(os.NewSyscallError("socket", err))
	}
	defer unix.Close(fd)
	switch err := getFrames(fd, frameInfo, nil, unsafe.Sizeof(frameTable{})); {
	case errors.Is(err, unix.ENOPROTOOPT):
		return "" // the kernel has no ebtables
	case !errors.Is(err, unix.EFAULT):
		return unreadFrames(err)
	}
	var found []string
	for _, name := range frameTables {
		if isLoaded("ebtables") && !isLoaded("ebtable_"+name) {
			continue // asking for the table would load its module
		}
		decides, err := frameTableDecides(fd, name)
		if err != nil {
			return unreadFrames(err)
		}
		if decides {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("legacy ebtables has rules (tables %s), which Fairlead does not follow: delete them, or use "+
		"ebtables-nft", strings.Join(found, ", "))
}

// unreadFrames describes that tables could not be read, if there may be some.
func unreadFrames(err error) string {
	loaded := slices.ContainsFunc(frameTables, func(name string) bool { return isLoaded("ebtable_" + name) })
	if errors.Is(err, unix.EPERM) && !loaded { // without privileges, built-in tables are not seen
		return ""
	}
	return fmt.Sprintf("read the tables of legacy ebtables: %v", err)
}

// isLoaded reports whether the kernel has loaded a module.
func isLoaded(module string) bool {
	_, err := os.Stat(filepath.Join(modules, module))
	return err == nil
}

// frameTableDecides reports whether a table of ebtables has rules or a policy other than ACCEPT.
func frameTableDecides(fd int, name string) (bool, error) {
	for range readings {
		var info frameTable
		copy(info.name[:], name)
		err := getFrames(fd, frameInfo, unsafe.Pointer(&info), unsafe.Sizeof(info))
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil || info.count > 0 || info.size == 0 {
			return info.count > 0, err
		}
		list := make([]byte, info.size)
		info.countersSize, info.countersList, info.entryList = 0, nil, unsafe.Pointer(&list[0])
		err = getFrames(fd, frameEntries, unsafe.Pointer(&info), unsafe.Sizeof(info)+uintptr(info.size))
		runtime.KeepAlive(list)
		if err == nil {
			return hasPolicy(list), nil
		}
		if !errors.Is(err, unix.EINVAL) { // else the table has changed
			return false, err
		}
	}
	return true, nil
}

// hasPolicy reports whether a chain with a hook, of those in a table without rules, has a policy
// other than ACCEPT.
func hasPolicy(list []byte) bool {
	for ; len(list) >= chainLength; list = list[chainLength:] {
		name := unix.ByteSliceToString(list[chainName : chainName+32])
		if slices.Contains(frameChains, name) && int32(binary.NativeEndian.Uint32(list[chainPolicy:])) != frameAccept {
			return true
		}
	}
	return false
}

// getFrames reads a socket option of ebtables.
func getFrames(fd, option int, value unsafe.Pointer, length uintptr) error {
	size := uint32(length)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, uintptr(option), uintptr(value),
		uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	return nil
}
