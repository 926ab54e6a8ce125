// Package steer holds the eBPF data plane of one host: its programs, the
// links that attach them, and the maps that they share. It is the inside of
// package kernel, which tells it in a plan's terms what to hold; it decides
// nothing and knows no plan.
//
// Theory of operation. What is pinned in the host's bpffs directory outlives
// the process that set it up: packets go on without it. The next one loads
// its own programs around the maps that it finds, and puts them in the place
// of the old ones in one step for each link, so that no packet is lost.
// Without a directory everything goes with the process.
//
// Kernel: 5.14 (bpf_redirect_peer, bpf_check_mtu, SO_NETNS_COOKIE).
package ebpf

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Options say for which host the plane is.
type Options struct {
	// Cookie identifies the host's network namespace (SO_NETNS_COOKIE).
	Cookie uint64
	// Pins is the host's directory in a bpffs; empty pins nothing.
	Pins string
	// LooseSources accepts a packet by an uplink if any uplink leads back to its
	// source. By default the one that it came by must.
	LooseSources bool
}

// Datapath is the data plane of one host. It is not safe for concurrent use.
type Datapath struct {
	opt  Options
	maps map[string]*ebpf.Map
	// programs are those for socket calls and for links with Ethernet headers,
	// bare those for links without. Each kind is loaded when one of it is
	// needed.
	programs, bare map[string]*ebpf.Program
	// bindKey is what the programs know the proxy's sockets by.
	bindKey uint64
	// types are the hooks that the programs are made for.
	types map[string]ebpf.AttachType
	// attached holds the links by the name of their pin.
	attached map[string]link.Link
	table    *Table
	balancer *Balancer
	// balancing says that maps and programs are those that take services, renewed
	// that whatever is attached is such a program.
	balancing, renewed bool
	// localRealEgress says that links with a program at their ingress have Homeward at
	// their egress.
	localRealEgress bool
	// pinsSeen is how the directories of pins were when all was pinned.
	pinsSeen pinTimes
}

// Load opens the plane around the maps that are pinned, or new ones. The calling
// thread must be in the host's network namespace.
func Load(opt Options) (*Datapath, error) {
	p := &Datapath{opt: opt, bindKey: randomKey(), programs: map[string]*ebpf.Program{}, attached: map[string]link.Link{}}
	if opt.Pins != "" {
		if err := makePins(opt.Pins); err != nil {
			return nil, fmt.Errorf("make the directory of pins: %w", err)
		}
	}
	err := p.load()
	p.renewed = true
	if err == nil {
		p.table, err = openTable(p.maps)
	}
	if err == nil {
		p.balancer, err = openBalancer(p.maps)
	}
	if err == nil {
		err = p.adopt()
	}
	if err == nil {
		err = p.adoptUplinks()
	}
	if err == nil {
		err = p.adoptLocalRealEgress()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// makePins makes the directories of the pins. A daemon of another network
// namespace may remove their common parent while it is empty, and the kernel
// then refuses the directory that was to be made in it: makePins tries again.
func makePins(dir string) error {
	for tries := 1; ; tries++ {
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "maps"), 0o700), os.MkdirAll(filepath.Join(dir, "links"), 0o700))
		if !errors.Is(err, os.ErrNotExist) || tries == 10 {
			return err
		}
	}
}

// randomKey draws a key. The programs of an earlier process are replaced when
// they are adopted, and their key with them.
func randomKey() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// BindKey returns what the programs know the proxy's sockets by: the lower half
// is their mark, the upper half their priority.
func (p *Datapath) BindKey() uint64 { return p.bindKey }

// ethernet is the length in bytes of an Ethernet header.
const ethernet = 14

// load makes the maps, but for those that are there already.
func (p *Datapath) load() (err error) {
	if p.balancing, err = p.balanced(); err != nil {
		return err
	}
	spec, err := Spec(p.opt.Cookie, ethernet, p.balancing)
	if err != nil {
		return err
	}
	found, err := p.foundMaps(spec)
	defer closeAll(found)
	if err != nil {
		return err
	}
	p.types = map[string]ebpf.AttachType{}
	for name, prog := range spec.Programs {
		p.types[name] = prog.AttachType
	}
	clear(spec.Programs)
	c, err := collection(spec, found)
	if err != nil {
		return err
	}
	p.maps = c.Maps
	for name, m := range c.Maps {
		if p.opt.Pins == "" || !shared(name) {
			continue
		}
		// A map that was found may have its pin already.
		err := m.Pin(filepath.Join(p.opt.Pins, "maps", name))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// Spec returns the programs and maps for a host and a length of link headers,
// with what virtual services need or without.
func Spec(cookie uint64, header uint32, balancing bool) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadFairlead()
	if err != nil {
		return nil, err
	}
	if !balancing {
		withoutServices(spec)
	}
	spec.Maps[bpf.FairleadMapFlWorkloads].Name = sharedName(cookie)
	for name, value := range map[string]any{
		bpf.FairleadVarHostNetns:  cookie,
		bpf.FairleadVarLinkHeader: header,
		bpf.FairleadVarHaveRetval: boolByte(kernelHas(6, 0)),
		bpf.FairleadVarBalancing:  boolByte(balancing),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return spec, nil
}

func boolByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// shared reports whether a map belongs to the host rather than to a program.
func shared(name string) bool { return !strings.HasPrefix(name, ".") }

// foundMaps opens the maps that are there already: those that an earlier
// process has pinned, and the one that all processes share.
func (p *Datapath) foundMaps(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	found, err := p.pinnedMaps(spec)
	if err != nil || found[bpf.FairleadMapFlWorkloads] != nil {
		return found, err
	}
	m, err := findShared(p.opt.Cookie)
	if m != nil && spec.Maps[bpf.FairleadMapFlWorkloads].Compatible(m) != nil {
		return found, m.Close() // another version's: its workloads are not ours to see
	}
	if m != nil {
		found[bpf.FairleadMapFlWorkloads] = m
	}
	return found, err
}

// pinnedMaps opens the maps that an earlier process has left. One of another
// layout, an earlier version's, is replaced: its flows are lost. So is one of
// services that have gone.
func (p *Datapath) pinnedMaps(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	pinned := map[string]*ebpf.Map{}
	if p.opt.Pins == "" {
		return pinned, nil
	}
	for name, want := range spec.Maps {
		if !shared(name) {
			continue
		}
		path := filepath.Join(p.opt.Pins, "maps", name)
		m, err := ebpf.LoadPinnedMap(path, nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return pinned, fmt.Errorf("open pinned map %s: %w", path, err)
		case want.Compatible(m) != nil:
			m.Close()
			if err := os.Remove(path); err != nil {
				return pinned, fmt.Errorf("replace pinned map: %w", err)
			}
			continue
		}
		pinned[name] = m
	}
	return pinned, nil
}

func closeAll(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

// Close lets go of everything. What is pinned stays.
func (p *Datapath) Close() error {
	var errs []error
	for _, l := range p.attached {
		errs = append(errs, l.Close())
	}
	errs = append(errs, p.closePrograms())
	if p.balancer != nil {
		errs = append(errs, p.balancer.Close())
	}
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

func (p *Datapath) closePrograms() error {
	var errs []error
	for _, set := range []map[string]*ebpf.Program{p.programs, p.bare} {
		for _, prog := range set {
			errs = append(errs, prog.Close())
		}
	}
	return errors.Join(errs...)
}

// Remove takes the pins away and closes the plane. Its links must have been
// detached before.
func (p *Datapath) Remove() error { return errors.Join(p.Rest(), p.Close()) }

// Rest takes the pins away, so that only this process holds the plane. Repin
// pins it again. Its links must have been detached before.
func (p *Datapath) Rest() error {
	if p.opt.Pins == "" {
		return nil
	}
	return os.RemoveAll(p.opt.Pins)
}

// Idle reports whether nothing is attached and the table is empty.
func (p *Datapath) Idle() bool { return len(p.attached) == 0 && p.table.empty() && p.balancer.empty() }

// Map returns one of the plane's maps, for those who watch it.
func (p *Datapath) Map(name string) *ebpf.Map { return p.maps[name] }

// verifierLines is how much of the verifier's log an error shows.
const verifierLines = 8

// explain adds the verifier's last lines and the kernel's version.
func explain(err error) error {
	var verdict *ebpf.VerifierError
	if !errors.As(err, &verdict) {
		return fmt.Errorf("load eBPF programs into Linux %s: %w", release(), err)
	}
	log := verdict.Log
	if len(log) > verifierLines {
		log = log[len(log)-verifierLines:]
	}
	return fmt.Errorf("load eBPF programs: Linux %s refuses them: %w; its verifier's last lines:\n\t%s",
		release(), verdict.Cause, strings.Join(log, "\n\t"))
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// kernelHas reports whether the kernel is at least of that release.
func kernelHas(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(release(), "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}
