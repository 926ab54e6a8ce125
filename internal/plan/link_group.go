package plan

import "fmt"

// LinkGroup is the device group of a link (`ip link set … group N`). The rules of
// Table match links by group: comparing a number takes the kernel far less time than
// looking up the link's name in a set.
type LinkGroup uint32

// The groups of the host's links to sandboxes. They follow rtnl.NewLinkGroup.
const (
	// SandboxLinks are the links of networks that are not internal.
	SandboxLinks LinkGroup = 0x66616973
	// InternalLinks are the links of internal networks.
	InternalLinks LinkGroup = 0x66616974
)

// SourceValid is the bit in the mark of packets whose source address fl_sandbox has found
// to be the endpoint's: SOURCE_VALID of bpf/include/source.h.
const SourceValid = 1 << 30

// option returns the option of `ip link set` that sets the group, if there is one.
func (g LinkGroup) option() string {
	if g == 0 {
		return ""
	}
	return fmt.Sprintf(" group %d", g)
}
