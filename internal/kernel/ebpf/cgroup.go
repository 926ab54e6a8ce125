package ebpf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// AttachCgroup attaches a program to the socket calls of a cgroup v2 directory, or
// replaces an earlier version there. Several programs at one hook run one after the
// other; those of the cgroup closest to the process run first. name distinguishes
// several attachments of one program.
func (p *Datapath) AttachCgroup(program, dir, name string) error {
	prog, err := p.program(program)
	if err != nil {
		return err
	}
	return p.attached.attach(program+"-"+name, prog, func() (link.Link, error) {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: p.types[program], Program: prog})
		if errors.Is(err, unix.E2BIG) {
			err = fmt.Errorf("%s has 64 programs at this hook, the most that Linux allows: "+
				"end a `fairlead run`: each of them uses one", dir)
		}
		return l, err
	})
}

// DetachCgroup detaches the program.
func (p *Datapath) DetachCgroup(program, name string) error {
	return p.attached.detach(program + "-" + name)
}

// HasCgroup reports whether the program is attached under that name, and pinned if the
// data path is pinned.
func (p *Datapath) HasCgroup(program, name string) bool { return p.sound(program + "-" + name) }

// CgroupsOf returns the names under which the program is attached.
func (p *Datapath) CgroupsOf(program string) []string {
	var names []string
	for attached := range p.attached.byName {
		if name, ok := strings.CutPrefix(attached, program+"-"); ok {
			names = append(names, name)
		}
	}
	return names
}
