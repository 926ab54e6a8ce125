package store

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
)

// Places are the directories of a File's two databases.
type Places struct {
	// State holds what is there after a reboot too: networks, services, and the
	// attachments that are kept. It is written through to the disk.
	State string
	// Run holds what a reboot ends: the record of the host, and attachments to
	// sandboxes that end with it. It outlives the process, not the machine, so
	// nobody waits for the disk.
	Run string
}

// InUseError says that another process has the databases open.
type InUseError struct {
	Path string
	// PID of the process, 0 where it is not known.
	PID string
}

// Error names the holder.
func (e *InUseError) Error() string {
	holder := "another process"
	if e.PID != "" {
		holder = "process " + e.PID
	}
	return fmt.Sprintf("open %s: %s holds it: stop that daemon, or give this one a --state-dir and --run-dir of its own", e.Path, holder)
}

// File keeps the record and the wishes in files, of which one process at a
// time is the owner. It is safe for concurrent use.
type File struct {
	// memory holds what the databases do; mu is for those who write both.
	memory        Memory
	mu            sync.Mutex
	lasting, boot *database
	pid           string

	desired  recordTables
	networks *table[model.Network]
	services *table[model.VirtualService]
	// Attachments and publishes are in one database or the other, as the
	// attachment is kept or not.
	attachments, passingAttachments *table[model.Attachment]
	publishes, externalPublish      *table[model.Publish]

	lastingNotes, passingNotes *Notes
}

// recordTables are the parts of a Record.
type recordTables struct {
	networks  *table[model.Network]
	endpoints *table[model.Endpoint]
	publishes *table[model.Publish]
	services  *table[model.VirtualService]
	leases    *table[lease]
	settings  *table[Setting]
	inside    *table[Inside]
	virtual   *table[Virtual]
	devices   *table[Device]
}

// lease is an entry of ipam.Leases.
type lease struct {
	Endpoint string
	Lease    []netip.Addr
}

// OpenFile opens the databases, or makes them. The error is a *InUseError when
// another process has them open. What is of another boot is forgotten.
func OpenFile(at Places) (*File, error) {
	f := &File{pid: filepath.Join(at.Run, "pid")}
	for _, dir := range []string{at.State, at.Run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	err := f.open(at)
	if err != nil {
		return nil, errors.Join(err, f.closeAll())
	}
	return f, nil
}

func (f *File) open(at Places) error {
	var err error
	if f.lasting, err = openDatabase(filepath.Join(at.State, "fairlead.db"), f.pid, false); err != nil {
		return err
	}
	if f.boot, err = openDatabase(filepath.Join(at.Run, "boot.db"), f.pid, true); err != nil {
		return err
	}
	if err := os.WriteFile(f.pid, fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	another, err := f.boot.of(strings.TrimSpace(string(id)))
	if err != nil {
		return err
	}
	if err := errors.Join(f.lasting.migrate(), f.boot.migrate()); err != nil {
		return err
	}
	f.declare()
	if err := errors.Join(f.lasting.read(), f.boot.read()); err != nil {
		return err
	}
	if another {
		f.awaitSandboxes()
	}
	return errors.Join(f.memory.Save(f.record()), f.memory.SaveDesired(f.stored()))
}

// awaitSandboxes notes that no sandbox outlives a reboot: what is at its path
// is another.
func (f *File) awaitSandboxes() {
	for name, a := range f.attachments.rows {
		a.Sandbox, a.Namespace, a.Lease = "", "", model.Lease{}
		f.attachments.rows[name] = a
	}
}

// declare says what is in which database.
func (f *File) declare() {
	f.networks = newTable(f.lasting, "networks", networkName, model.Network.Equal)
	f.services = newTable(f.lasting, "services", func(v model.VirtualService) string { return v.Name }, model.VirtualService.Equal)
	f.attachments = newTable(f.lasting, "attachments", attachmentName, model.Attachment.Equal)
	f.publishes = newTable(f.lasting, "publishes", publishKey, model.Publish.Equal)
	f.passingAttachments = newTable(f.boot, "attachments", attachmentName, model.Attachment.Equal)
	f.externalPublish = newTable(f.boot, "publishes", publishKey, model.Publish.Equal)
	f.lastingNotes, f.passingNotes = newNotes(f, f.lasting), newNotes(f, f.boot)
	f.desired = recordTables{
		networks:  newTable(f.boot, "desired networks", networkName, model.Network.Equal),
		endpoints: newTable(f.boot, "desired endpoints", func(e model.Endpoint) string { return e.Name }, model.Endpoint.Equal),
		publishes: newTable(f.boot, "desired publishes", publishKey, model.Publish.Equal),
		services:  newTable(f.boot, "desired services", func(v model.VirtualService) string { return v.Name }, model.VirtualService.Equal),
		leases: newTable(f.boot, "leases", func(l lease) string { return l.Endpoint },
			func(a, b lease) bool { return a.Endpoint == b.Endpoint && slices.Equal(a.Lease, b.Lease) }),
		settings: newTable(f.boot, "settings", func(s Setting) string { return s.Netns + " " + s.Name },
			func(a, b Setting) bool { return a == b }),
		inside: newTable(f.boot, "links in sandboxes", func(i Inside) string { return i.Netns + " " + i.Link + " " + i.Device },
			func(a, b Inside) bool { return a == b }),
		virtual: newTable(f.boot, "virtual addresses", func(v Virtual) string { return v.Link + " " + v.Addr.String() },
			func(a, b Virtual) bool { return a == b }),
		devices: newTable(f.boot, "devices", func(d Device) string { return d.Device }, func(a, b Device) bool { return a == b }),
	}
}

func networkName(n model.Network) string       { return n.Name }
func attachmentName(a model.Attachment) string { return a.Name }
func publishKey(p model.Publish) string {
	return fmt.Sprintf("%s %s %s %s", p.Endpoint, p.Proto, p.HostAddr, p.HostPorts)
}

// record puts the tables together.
func (f *File) record() Record {
	r := Record{
		Desired: model.State{Networks: f.desired.networks.all(), Endpoints: f.desired.endpoints.all(), Publishes: f.desired.publishes.all(),
			Services: f.desired.services.all()},
		Settings: f.desired.settings.all(),
		Inside:   f.desired.inside.all(),
		Virtual:  f.desired.virtual.all(),
		Devices:  f.desired.devices.all(),
	}
	for _, l := range f.desired.leases.all() {
		if r.Leases == nil {
			r.Leases = ipam.Leases{}
		}
		r.Leases[l.Endpoint] = l.Lease
	}
	return r
}

func (f *File) stored() model.Desired {
	w := model.Desired{Networks: f.networks.all(), Attachments: f.attachments.all(), Publishes: f.publishes.all(), Services: f.services.all()}
	// An attachment that was being moved from one database to the other is in
	// both.
	for _, a := range f.passingAttachments.all() {
		if _, kept := f.attachments.rows[a.Name]; !kept {
			w.Attachments = append(w.Attachments, a)
		}
	}
	for _, p := range f.externalPublish.all() {
		if _, kept := f.publishes.rows[publishKey(p)]; !kept {
			w.Publishes = append(w.Publishes, p)
		}
	}
	return w
}

// Load returns the record last saved. Of one that an earlier process saved,
// the parts are ordered by name.
func (f *File) Load() (Record, error) { return f.memory.Load() }

// Save replaces the record.
func (f *File) Save(r Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r = r.Clone()
	var leases []lease
	for name, addrs := range r.Leases {
		leases = append(leases, lease{name, addrs})
	}
	err := f.boot.write(f.desired.networks.set(r.Desired.Networks), f.desired.endpoints.set(r.Desired.Endpoints),
		f.desired.publishes.set(r.Desired.Publishes), f.desired.services.set(r.Desired.Services), f.desired.leases.set(leases), f.desired.settings.set(r.Settings), f.desired.inside.set(r.Inside),
		f.desired.virtual.set(r.Virtual), f.desired.devices.set(r.Devices))
	if err == nil {
		f.memory.take(r)
	}
	return err
}

// Desired returns the wishes last saved, ordered as Load does.
func (f *File) Desired() (model.Desired, error) { return f.memory.Desired() }

// SaveDesired replaces the wishes.
func (f *File) SaveDesired(w model.Desired) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w = w.Clone()
	var kept []model.Attachment
	externals := make([]model.Attachment, 0, len(w.Attachments))
	lasts := map[string]bool{}
	for _, a := range w.Attachments {
		if lasts[a.Name] = a.Keep; a.Keep {
			kept = append(kept, a)
		} else {
			externals = append(externals, a)
		}
	}
	var publishes, passingPublishes []model.Publish
	for _, p := range w.Publishes {
		if lasts[p.Endpoint] {
			publishes = append(publishes, p)
		} else {
			passingPublishes = append(passingPublishes, p)
		}
	}
	err := f.lasting.write(f.networks.set(w.Networks), f.attachments.set(kept), f.publishes.set(publishes), f.services.set(w.Services))
	if err == nil {
		err = f.boot.write(f.passingAttachments.set(externals), f.externalPublish.set(passingPublishes))
	}
	if err != nil {
		return err
	}
	return f.memory.SaveDesired(w)
}

// Close lets go of the files.
func (f *File) Close() error {
	return errors.Join(os.Remove(f.pid), f.closeAll())
}

func (f *File) closeAll() error {
	var errs []error
	for _, d := range []*database{f.lasting, f.boot} {
		if d != nil {
			errs = append(errs, d.db.Close())
		}
	}
	return errors.Join(errs...)
}
