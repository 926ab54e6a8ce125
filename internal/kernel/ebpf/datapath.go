// Package ebpf manages the eBPF data path of one host: its programs, the links that
// attach them, and their maps. Package kernel uses it and translates from plan objects;
// this package decides nothing and applies no plans.
//
// Theory of operation. Pins in the host's bpffs directory outlive the process that
// created them, so packets are forwarded without the process. The next process loads its
// own programs around the pinned maps and replaces each attached program in one step, so
// that no packet is lost. Without a directory all objects end with the process.
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

// Options describe the host.
type Options struct {
	// Cookie identifies the host's network namespace (SO_NETNS_COOKIE).
	Cookie uint64
	// Pins is the host's directory in a bpffs. If it is empty, nothing is pinned.
	Pins string
	// LooseSources accepts a packet on an uplink if the route back to its source uses
	// any uplink. By default it must use the uplink on which the packet arrived.
	LooseSources bool
	// local are the ports from which the host connects. Load reads them.
	local portRange
}

// Datapath is the eBPF data path of one host. It is not safe for concurrent use.
type Datapath struct {
	opt  Options
	maps map[string]*ebpf.Map
	// programs are the programs for socket calls and for links with Ethernet headers,
	// bare those for links without. Each kind is loaded at its first use.
	programs, bare map[string]*ebpf.Program
	// bindKey identifies the proxy's sockets to the programs.
	bindKey uint64
	// types are the programs' attach types.
	types map[string]ebpf.AttachType
	// attached contains the links by the names of their pins.
	attached links
	table    *Table
	balancer *Balancer
	// balancing says that maps and programs support services, and renewed that all
	// attached programs do.
	balancing, renewed bool
	// growth is loaded for the first virtual service; nil if it is not.
	growth *Growth
	// localRealEgress says that links with a program at ingress have LocalRealEgress at
	// egress.
	localRealEgress bool
	// pinsSeen are the times of the directories of pins when all pins existed.
	pinsSeen pinTimes
}

// Load opens the data path around the pinned maps, or new ones. The calling thread must
// be in the host's network namespace.
func Load(opt Options) (*Datapath, error) {
	var err error
	if opt.local, err = localPorts(); err != nil {
		return nil, err
	}
	p := &Datapath{opt: opt, bindKey: randomKey(), programs: map[string]*ebpf.Program{},
		attached: links{pins(opt.Pins), map[string]link.Link{}}}
	if opt.Pins != "" {
		if err := makePins(opt.Pins); err != nil {
			return nil, fmt.Errorf("create the directory of pins: %w", err)
		}
	}
	err = p.load()
	p.renewed = true
	if err == nil {
		p.table, err = openTable(p.maps)
	}
	if err == nil {
		p.balancer, err = openBalancer(p.maps)
	}
	if err == nil {
		err = p.attached.adopt()
	}
	if err == nil && opt.Pins != "" {
		err = p.renew()
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

// LoadUnpinned is Load for programs that no step needs yet. It adopts nothing, and pins nothing until Repin is called.
func LoadUnpinned(opt Options) (*Datapath, error) {
	dir := opt.Pins
	opt.Pins = ""
	p, err := Load(opt)
	if err != nil {
		return nil, err
	}
	p.opt.Pins, p.attached.pins = dir, pins(dir)
	return p, nil
}

// makePins creates the directories of the pins. A daemon of another network namespace
// may remove their common parent while it is empty. The kernel then refuses to create
// the directory in it, and makePins tries again.
func makePins(dir string) error {
	for tries := 1; ; tries++ {
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "maps"), 0o700),
			os.MkdirAll(filepath.Join(dir, "links"), 0o700))
		if !errors.Is(err, os.ErrNotExist) || tries == 10 {
			return err
		}
	}
}

// randomKey returns a random key. When the programs of an earlier process are adopted,
// they are replaced, and the key with them.
func randomKey() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// BindKey returns the key that identifies the proxy's sockets: the lower half is their
// mark, the upper half their priority.
func (p *Datapath) BindKey() uint64 { return p.bindKey }

// ethernet is the length in bytes of an Ethernet header.
const ethernet = 14

// load creates the maps that do not exist yet.
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
		// A map that was found may already be pinned.
		err := m.Pin(filepath.Join(p.opt.Pins, "maps", name))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// lruPerCPU is how many entries an LRU map needs for each CPU. Before Linux 6.17 each CPU
// takes 128 free entries at a time, and removes entries in use if the others have taken
// all free ones.
const lruPerCPU = 256

// loadSpec returns the programs and maps for a number of CPUs.
func loadSpec(cpus int) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.Fairlead()
	if err != nil {
		return nil, err
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.LRUHash {
			m.MaxEntries = max(m.MaxEntries, uint32(lruPerCPU*cpus))
		}
	}
	for _, name := range []string{bpf.FairleadMapFlTotals, bpf.FairleadMapFlRealTotals} {
		spec.Maps[name].MaxEntries *= uint32(cpus)
	}
	return spec, nil
}

// Spec returns the programs and maps for a host and a length of link headers, with or
// without support for services.
func Spec(cookie uint64, header uint32, balancing bool) (*ebpf.CollectionSpec, error) {
	spec, err := loadSpec(ebpf.MustPossibleCPU())
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

// foundMaps opens the existing maps: those that an earlier process pinned, and the one
// that all processes share.
func (p *Datapath) foundMaps(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	found, err := p.pins().openMaps(spec)
	if err != nil || found[bpf.FairleadMapFlWorkloads] != nil {
		return found, err
	}
	m, err := findShared(p.opt.Cookie)
	if m != nil && spec.Maps[bpf.FairleadMapFlWorkloads].Compatible(m) != nil {
		return found, m.Close() // a map of another version, with a different layout
	}
	if m != nil {
		found[bpf.FairleadMapFlWorkloads] = m
	}
	return found, err
}

// openMaps opens the maps that an earlier process left. An LRU map with another number
// of entries stays as it is, because its flows are open (ofSize). A map with another
// layout is replaced, and its flows are lost. That is a map of another version, or one
// for services that no longer exist.
func (dir pins) openMaps(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	pinned := map[string]*ebpf.Map{}
	if dir == "" {
		return pinned, nil
	}
	for name, want := range spec.Maps {
		if !shared(name) {
			continue
		}
		path := dir.mapOf(name)
		m, err := ebpf.LoadPinnedMap(path, nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return pinned, fmt.Errorf("open pinned map %s: %w", path, err)
		case ofSize(want, m).Compatible(m) != nil:
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

// ofSize returns the specification with the number of entries of an existing LRU map, so
// that the map fits. The number depends on the version and on the number of CPUs. A map
// of one entry is one for services that do not exist (withoutServices), and never fits a
// larger one.
func ofSize(want *ebpf.MapSpec, m *ebpf.Map) *ebpf.MapSpec {
	if want.Type != ebpf.LRUHash || want.MaxEntries == 1 || m.MaxEntries() == 1 {
		return want
	}
	sized := want.Copy()
	sized.MaxEntries = m.MaxEntries()
	return sized
}

func closeAll(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}

// Close releases all objects. Pinned ones stay.
func (p *Datapath) Close() error {
	errs := []error{p.attached.close()}
	if p.growth != nil {
		errs = append(errs, p.growth.Withdraw(p))
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

// Remove deletes the pins and closes the data path. Its links must be detached first.
func (p *Datapath) Remove() error { return errors.Join(p.Rest(), p.Close()) }

// Rest deletes the pins, so that the data path ends with this process. Repin pins it
// again. Its links must be detached first.
func (p *Datapath) Rest() error {
	if p.opt.Pins == "" {
		return nil
	}
	return os.RemoveAll(p.opt.Pins)
}

// Idle reports whether nothing is attached and the table is empty.
func (p *Datapath) Idle() bool {
	return len(p.attached.byName) == 0 && p.table.empty() && p.balancer.empty()
}

// Map returns one of the data path's maps, for tests and statistics.
func (p *Datapath) Map(name string) *ebpf.Map { return p.maps[name] }

// verifierLines is how many lines of the verifier's log an error includes.
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

// kernelHas reports whether the kernel has at least that release.
func kernelHas(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(release(), "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}
