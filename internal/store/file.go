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

	"fairlead/internal/boltfile"
	"fairlead/internal/ipam"
	"fairlead/internal/model"
)

// Places are the directories of a File's two databases.
type Places struct {
	// State is the directory of the database that must survive a reboot: networks,
	// services, and attachments with Keep set. Writes are synced to the disk.
	State string
	// Run is the directory of the database that is invalid after a reboot: the
	// record of the host, and the other attachments. It must survive only the
	// process, so writes are not synced to the disk.
	Run string
	// CopyFailed is called if the copy of a database cannot be written; it can be nil. It must not call the
	// File. It may be called concurrently.
	CopyFailed func(error) `json:"-"`
}

// The default directories.
const (
	RunDir   = "/run/fairlead"
	StateDir = "/var/lib/fairlead"
)

// The databases' names in the directories State and Run.
const (
	lastingName = "fairlead.db"
	bootName    = "boot.db"
)

// InUseError is the error of OpenFile and ReadDesired when another process has
// the databases open.
type InUseError struct {
	Path string
	// PID is the process id of the other process. It is empty if unknown.
	PID string
}

// Error implements error.
func (e *InUseError) Error() string {
	holder := "another process"
	if e.PID != "" {
		holder = "process " + e.PID
	}
	return fmt.Sprintf("open %s: %s uses it: stop that daemon, or start this one with another --state-dir and --run-dir", e.Path, holder)
}

// File saves the record and the desired state in two bbolt databases. Only one
// process at a time can open them. It is safe for concurrent use. A copy of each
// database is beside it, and is at most [copyEvery] older than the database.
type File struct {
	// memory is a copy of what is in the databases. Writers of a database hold
	// mu until memory is updated too.
	memory        Memory
	mu            sync.Mutex
	lasting, boot *database
	// pid is the path of the file with the process id of the owner.
	pid string

	record   recordTables
	networks *table[model.Network]
	services *table[model.VirtualService]
	// gateways and clusterGateways have at most one row.
	gateways        *table[model.Gateway]
	clusterGateways *table[model.ClusterGateway]
	// An attachment with Keep set and its publishes are in the database lasting,
	// the others in boot.
	attachments, passingAttachments *table[model.Attachment]
	publishes, passingPublishes     *table[model.Publish]

	lastingNotes, passingNotes *Notes
}

// recordTables are the tables of the parts of a Record.
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

// OpenFile opens the databases, and creates them if they do not exist. It
// deletes the contents of the database in at.Run if they are from another boot.
// It returns a *InUseError if another process has the databases open, and a
// *DamagedError if one of them does not have what was stored in it.
func OpenFile(at Places) (*File, error) {
	f := &File{pid: filepath.Join(at.Run, "pid")}
	for _, dir := range []string{at.State, at.Run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	err := f.open(at)
	if err != nil {
		return nil, errors.Join(at.advise(err), f.closeAll())
	}
	return f, nil
}

func (f *File) open(at Places) error {
	boot, err := currentBoot()
	if err != nil {
		return err
	}
	if f.lasting, err = openDatabase(filepath.Join(at.State, lastingName), f.pid, boltfile.Options{}); err != nil {
		return err
	}
	if f.boot, err = openBoot(filepath.Join(at.Run, bootName), f.pid, boot); err != nil {
		return err
	}
	if err := os.WriteFile(f.pid, fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	another, err := f.boot.of(boot)
	if err != nil {
		return err
	}
	f.declare()
	if err := errors.Join(f.lasting.read(), f.boot.read()); err != nil {
		return err
	}
	for _, d := range []*database{f.lasting, f.boot} {
		d.copies = startCopies(d.db, d.opt, at.CopyFailed)
	}
	if another {
		await := f.awaitSandboxes()
		if f.lasting.write(await) != nil { // for example because the disk is full, which keeps no daemon from its start
			await.done()
		}
	}
	return errors.Join(f.memory.Save(f.saved()), f.memory.SaveDesired(f.stored()))
}

// currentBoot returns the id of the host's boot.
func currentBoot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("open store: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// openBoot opens the database of that boot. A database of an earlier boot may be damaged: a power loss damages
// it if the directory is on a disk, and nothing of it is valid any more.
func openBoot(path, pid, boot string) (*database, error) {
	opt := boltfile.Options{NoSync: true}
	d, err := openDatabase(path, pid, opt)
	if damaged := new(DamagedError); !errors.As(err, &damaged) || !copyOfAnotherBoot(path, boot) {
		return d, err
	}
	if err := errors.Join(boltfile.Remove(boltfile.CopyOf(path)), boltfile.Remove(path)); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return openDatabase(path, pid, opt)
}

// copyOfAnotherBoot reports whether the copy of a database was written during another boot. The first
// process of a boot writes the copy when it opens the database.
func copyOfAnotherBoot(path, boot string) bool {
	copied, err := readCopy(path)
	return err == nil && string(copied.Meta[bootKey]) != boot
}

// awaitSandboxes returns the change that removes the sandbox from every attachment
// that survived a reboot: no sandbox survives a reboot, and what is at its path is
// another one. It is written, because the next process does not see that there was a
// reboot.
func (f *File) awaitSandboxes() change {
	put := map[string]any{}
	for name, a := range f.attachments.rows {
		a.Sandbox, a.Namespace, a.Lease = "", "", model.Lease{}
		put[name] = a
	}
	return f.attachments.change(put)
}

// declare creates the tables, each in its database.
func (f *File) declare() {
	f.networks = newTable(f.lasting, "networks", networkName, model.Network.Equal)
	f.services = newTable(f.lasting, "services", func(v model.VirtualService) string { return v.Name },
		model.VirtualService.Equal)
	f.gateways = newTable(f.lasting, "gateway", func(model.Gateway) string { return "gateway" },
		func(a, b model.Gateway) bool { return a.Equal(&b) })
	f.clusterGateways = newTable(f.lasting, "cluster gateway", func(model.ClusterGateway) string { return "gateway" },
		func(a, b model.ClusterGateway) bool { return a.Equal(&b) })
	f.attachments = newTable(f.lasting, "attachments", attachmentName, model.Attachment.Equal)
	f.publishes = newTable(f.lasting, "publishes", publishKey, model.Publish.Equal)
	f.passingAttachments = newTable(f.boot, "attachments", attachmentName, model.Attachment.Equal)
	f.passingPublishes = newTable(f.boot, "publishes", publishKey, model.Publish.Equal)
	f.lastingNotes, f.passingNotes = newNotes(f, f.lasting), newNotes(f, f.boot)
	f.record = recordTables{
		networks: newTable(f.boot, "applied networks", networkName, model.Network.Equal),
		endpoints: newTable(f.boot, "applied endpoints", func(e model.Endpoint) string { return e.Name },
			model.Endpoint.Equal),
		publishes: newTable(f.boot, "applied publishes", publishKey, model.Publish.Equal),
		services: newTable(f.boot, "applied services", func(v model.VirtualService) string { return v.Name },
			model.VirtualService.Equal),
		leases: newTable(f.boot, "leases", func(l lease) string { return l.Endpoint },
			func(a, b lease) bool { return a.Endpoint == b.Endpoint && slices.Equal(a.Lease, b.Lease) }),
		settings: newTable(f.boot, "settings", func(s Setting) string { return s.Netns + " " + s.Name },
			func(a, b Setting) bool { return a == b }),
		inside: newTable(f.boot, "links in sandboxes",
			func(i Inside) string { return i.Netns + " " + i.Link + " " + i.Device },
			func(a, b Inside) bool { return a == b }),
		virtual: newTable(f.boot, "virtual addresses", func(v Virtual) string { return v.Link + " " + v.Addr.String() },
			func(a, b Virtual) bool { return a == b }),
		devices: newTable(f.boot, "devices", func(d Device) string { return d.Device },
			func(a, b Device) bool { return a == b }),
	}
}

func networkName(n model.Network) string       { return n.Name }
func attachmentName(a model.Attachment) string { return a.Name }
func publishKey(p model.Publish) string {
	return fmt.Sprintf("%s %s %s %s", p.Endpoint, p.Proto, p.HostAddr, p.HostPorts)
}

// saved returns the Record that is in the tables.
func (f *File) saved() Record {
	r := Record{
		Applied: model.State{Networks: f.record.networks.all(), Endpoints: f.record.endpoints.all(),
			Publishes: f.record.publishes.all(),
			Services:  f.record.services.all()},
		Settings: f.record.settings.all(),
		Inside:   f.record.inside.all(),
		Virtual:  f.record.virtual.all(),
		Devices:  f.record.devices.all(),
	}
	for _, l := range f.record.leases.all() {
		if r.Leases == nil {
			r.Leases = ipam.Leases{}
		}
		r.Leases[l.Endpoint] = l.Lease
	}
	return r
}

// stored returns the desired state that is in the tables.
func (f *File) stored() model.Desired {
	d := model.Desired{Networks: f.networks.all(), Attachments: f.attachments.all(), Publishes: f.publishes.all(),
		Services: f.services.all()}
	for _, g := range f.gateways.all() {
		d.Gateway = &g
	}
	for _, g := range f.clusterGateways.all() {
		d.ClusterGateway = &g
	}
	// If the process died while it moved an attachment from one database to the
	// other, the attachment is in both.
	for _, a := range f.passingAttachments.all() {
		if _, kept := f.attachments.rows[a.Name]; !kept {
			d.Attachments = append(d.Attachments, a)
		}
	}
	for _, p := range f.passingPublishes.all() {
		if _, kept := f.publishes.rows[publishKey(p)]; !kept {
			d.Publishes = append(d.Publishes, p)
		}
	}
	return d
}

// Load returns a copy of the record last saved. If an earlier process saved it,
// the parts are ordered by name.
func (f *File) Load() (Record, error) { return f.memory.Load() }

// Save replaces the record, in the database and in memory.
func (f *File) Save(r Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r = r.Clone()
	var leases []lease
	for name, addrs := range r.Leases {
		leases = append(leases, lease{name, addrs})
	}
	err := f.boot.write(f.record.networks.set(r.Applied.Networks), f.record.endpoints.set(r.Applied.Endpoints),
		f.record.publishes.set(r.Applied.Publishes), f.record.services.set(r.Applied.Services),
		f.record.leases.set(leases),
		f.record.settings.set(r.Settings), f.record.inside.set(r.Inside), f.record.virtual.set(r.Virtual),
		f.record.devices.set(r.Devices))
	if err == nil {
		f.memory.setRecord(r)
	}
	return err
}

// Desired returns a copy of the desired state last saved. If an earlier process
// saved it, the parts are ordered by name.
func (f *File) Desired() (model.Desired, error) { return f.memory.Desired() }

// SaveDesired replaces the desired state, in the databases and in memory.
func (f *File) SaveDesired(d model.Desired) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d = d.Clone()
	var kept []model.Attachment
	passing := make([]model.Attachment, 0, len(d.Attachments))
	keeps := map[string]bool{}
	for _, a := range d.Attachments {
		if keeps[a.Name] = a.Keep; a.Keep {
			kept = append(kept, a)
		} else {
			passing = append(passing, a)
		}
	}
	var publishes, passingPublishes []model.Publish
	for _, p := range d.Publishes {
		if keeps[p.Endpoint] {
			publishes = append(publishes, p)
		} else {
			passingPublishes = append(passingPublishes, p)
		}
	}
	var gateways []model.Gateway
	if d.Gateway != nil {
		gateways = append(gateways, *d.Gateway)
	}
	var clusterGateways []model.ClusterGateway
	if d.ClusterGateway != nil {
		clusterGateways = append(clusterGateways, *d.ClusterGateway)
	}
	lasting := []change{f.networks.set(d.Networks), f.attachments.set(kept), f.publishes.set(publishes),
		f.services.set(d.Services), f.gateways.set(gateways), f.clusterGateways.set(clusterGateways)}
	boot := []change{f.passingAttachments.set(passing), f.passingPublishes.set(passingPublishes)}
	if err := f.writeBoth(lasting, boot); err != nil {
		return err
	}
	return f.memory.SaveDesired(d)
}

// writeBoth writes changes to both databases. If the process ends meanwhile, nothing is in neither: an
// attachment that moves is in both first, and a network is present as long as an attachment to it.
func (f *File) writeBoth(lasting, boot []change) error {
	if !slices.ContainsFunc(boot, change.any) {
		return f.lasting.write(lasting...)
	}
	var put, deleted []change
	for _, c := range lasting {
		p, d := c.split()
		put, deleted = append(put, p), append(deleted, d)
	}
	if err := f.lasting.write(put...); err != nil {
		return err
	}
	if err := f.boot.write(boot...); err != nil {
		return err
	}
	return f.lasting.write(deleted...)
}

// Close closes the databases and removes the PID file. If nothing is stored, it
// removes the databases, too. The PID file is removed first: once a database is
// removed, the next process can write its own.
func (f *File) Close() error {
	f.endCopies()
	return errors.Join(os.Remove(f.pid), f.removeEmpty(), f.closeAll())
}

// endCopies writes the copies that are not up to date.
func (f *File) endCopies() {
	for _, d := range []*database{f.lasting, f.boot} {
		d.copies.end()
	}
}

// removeEmpty removes the databases and their copies if both are empty. They are still
// locked, so that no other process writes to them meanwhile. A copy alone would be a
// damage, so it is removed first.
func (f *File) removeEmpty() error {
	for _, d := range []*database{f.lasting, f.boot} {
		if empty, err := d.empty(); err != nil || !empty {
			return err
		}
	}
	for _, path := range []string{f.lasting.db.Path(), f.boot.db.Path()} {
		if err := boltfile.Remove(boltfile.CopyOf(path)); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
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
