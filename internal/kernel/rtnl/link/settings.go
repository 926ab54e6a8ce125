package link

import (
	"errors"
	"fmt"
	"os"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// SetLinkSettings writes the settings of the links that the object consists of. A
// new link gets its settings before it is set up: until then it receives nothing,
// so the kernel's defaults have no effect.
func (h *Handle) SetLinkSettings(o plan.Object) error {
	return h.writeSettings(plan.LinkSettings(o))
}

// writeSettings writes the settings, which may be of several namespaces; it enters
// each namespace once. It skips settings that do not exist: those for IPv6 on a
// kernel without IPv6, or on a link whose MTU is too small for IPv6.
func (h *Handle) writeSettings(all []plan.Sysctl) error {
	h.ForgetConfs()
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Netns == all[0].Netns {
			n++
		}
		ns, err := h.ns.Open(all[0].Netns)
		if err != nil {
			return err
		}
		err = ns.Do(func() error { return writeSettings(all[:n]) })
		ns.Close()
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// writeSettings writes settings of the calling thread's namespace.
func writeSettings(all []plan.Sysctl) error {
	for _, s := range all {
		err := writeSysctl(rtnl.SysctlPath(s.Name), s)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return nil
}
