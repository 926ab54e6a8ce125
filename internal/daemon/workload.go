package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// HostNetwork is the network of workloads in the host's own namespace. It is
// there for as long as there is one.
const HostNetwork = "docker-host"

// Workload is a container in the host's own namespace, with ports that are
// published via socket.
type Workload struct {
	// Name is that of its attachment, and Ref is how its user calls it.
	Name, Ref string
	// Cgroup is its cgroup v2 directory.
	Cgroup   string
	Unlisted model.Unpublished
	// Publishes are its ports. Endpoint, Via and Origin are filled in.
	Publishes []model.Publish
	// Wrong says why nothing can be published; nil when it can.
	Wrong error
}

// Admit publishes the ports of a workload. The same again changes nothing. One
// that cannot be published stays as an attachment that says why.
func (d *Daemon) Admit(w Workload) (changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, publishes, err := w.desired()
	have, known := d.attachment(w.Name)
	if known && have.Network != HostNetwork {
		return false, fault(Conflict, "publish ports of %s: there is another attachment %s", w.Ref, w.Name)
	}
	a.NeedsRestart = have.NeedsRestart
	if err == nil && known && have.Equal(a) && slices.EqualFunc(d.publishesOf(w.Name), publishes, model.Publish.Equal) {
		return false, nil
	}
	a.NeedsRestart = false
	next := d.less(map[string]bool{w.Name: true})
	if known { // at the same path, another cgroup would be taken for it
		err = errors.Join(err, d.settle(next))
	}
	if err == nil {
		err = d.checkPorts(publishes)
	}
	if err == nil {
		delete(d.problems, w.Name)
		err = d.settle(admitted(next, a, publishes))
	}
	if err == nil {
		d.cfg.Log.Info("published", "attachment", w.Name, "sandbox", w.Ref, "publishes", len(publishes))
		return true, nil
	}
	err = fmt.Errorf("publish ports of %s: %w", w.Ref, err)
	a.Cgroup, a.Namespace, a.Unpublished = "", "", ""
	d.problems[w.Name] = err.Error()
	return true, errors.Join(err, d.settle(admitted(next, a, nil)))
}

// Dismiss takes away what was of a workload that is gone. That there is none is
// fine.
func (d *Daemon) Dismiss(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, known := d.attachment(name); !known || a.Network != HostNetwork {
		return nil
	}
	delete(d.problems, name)
	if err := d.settle(d.less(map[string]bool{name: true})); err != nil {
		return fmt.Errorf("take away the ports of %s: %w", name, err)
	}
	d.cfg.Log.Info("dismissed", "attachment", name)
	return nil
}

// desired returns what a workload asks for, or why that cannot be.
func (w Workload) desired() (a model.Attachment, publishes []model.Publish, err error) {
	a = model.Attachment{Ref: w.Ref, Private: true, Origin: model.FromDocker, Endpoint: model.Endpoint{Name: w.Name, Network: HostNetwork, Cgroup: w.Cgroup, Unpublished: w.Unlisted}}
	if w.Wrong != nil {
		return a, nil, w.Wrong
	}
	if a.Namespace, err = group(w.Cgroup); err != nil {
		return a, nil, err
	}
	for _, p := range w.Publishes {
		p.Endpoint, p.Via, p.Origin = w.Name, model.ViaSocket, model.FromDocker
		publishes = append(publishes, p)
	}
	alone := model.State{Networks: hostNetworks(nil), Endpoints: []model.Endpoint{a.Endpoint}, Publishes: publishes}
	return a, publishes, alone.Validate()
}

// group tells a cgroup from any other that comes to its path later.
func group(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("look at cgroup %s: %w", path, err)
	}
	return "cgroup:" + strconv.FormatUint(st.Ino, 10), nil
}

// groupGone reports whether the attachment is a workload whose cgroup is gone.
func groupGone(a model.Attachment) bool {
	if a.Cgroup == "" {
		return false
	}
	is, err := group(a.Cgroup)
	return err != nil || is != a.Namespace
}

func admitted(w model.Desired, a model.Attachment, publishes []model.Publish) model.Desired {
	w = with(w, a)
	w.Networks = hostNetworks(w.Networks)
	w.Publishes = slices.Concat(w.Publishes, publishes)
	return w
}

// hostNetworks are the networks with that of workloads among them.
func hostNetworks(all []model.Network) []model.Network {
	if slices.ContainsFunc(all, func(n model.Network) bool { return n.Name == HostNetwork }) {
		return all
	}
	return append(slices.Clone(all), model.Network{Name: HostNetwork, Driver: model.DriverHost, Origin: model.FromDocker})
}

func (d *Daemon) publishesOf(name string) (all []model.Publish) {
	for _, p := range d.desired.Publishes {
		if p.Endpoint == name {
			all = append(all, p)
		}
	}
	return all
}

// checkPorts says who holds a host port that is to be published. A workload that
// has not run yet holds none.
func (d *Daemon) checkPorts(publishes []model.Publish) error {
	for _, p := range publishes {
		hosts := []netip.Addr{p.HostAddr}
		if !p.HostAddr.IsValid() {
			hosts = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		}
		for _, host := range hosts {
			err := d.cfg.Host.CheckPorts([]plan.EBPFMapping{{Proto: p.Proto, Host: host, Ports: p.HostPorts}})
			var inUse *kernel.PortInUseError
			if errors.As(err, &inUse) {
				return &model.PortTakenError{Publish: p, Owner: inUse.Owner.String()}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// problemOf says what is wrong with an attachment, empty for nothing.
func (d *Daemon) problemOf(a model.Attachment) string {
	return cmp.Or(d.problems[a.Name], lateness(a))
}
