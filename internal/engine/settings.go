package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// remember writes the record with the earlier value of each setting that will be
// changed, and with the links that will be moved into sandboxes, so that an
// interrupted apply can be undone.
func (e *Engine) remember(record *store.Record, set []plan.Op) error {
	for _, op := range set {
		s, ok := op.Object.(plan.Sysctl)
		if _, known := record.Setting(s.Netns, s.Name); !ok || known {
			continue
		}
		value, err := e.before(s)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.Name, err)
		}
		record.Settings = append(record.Settings,
			store.Setting{Netns: s.Netns, Name: s.Name, Value: s.Value, Before: value})
		if value == s.Value {
			continue
		}
		others, err := overwritten(e.cfg.Kernel.Net(), s)
		if err != nil {
			return fmt.Errorf("read what the kernel changes with %s: %w", s.Name, err)
		}
		record.Settings = append(record.Settings, others...)
	}
	for _, op := range set {
		if at, ok := inside(op.Object); ok && !slices.Contains(record.Inside, at) {
			record.Inside = append(record.Inside, at)
		}
		if v, ok := op.Object.(plan.VirtualAddress); ok && !slices.Contains(record.Virtual, store.Virtual(v)) {
			record.Virtual = append(record.Virtual, store.Virtual(v))
		}
	}
	for _, op := range set {
		if d, ok := op.Object.(plan.Device); ok {
			if err := e.describe(record, d); err != nil {
				return err
			}
		}
	}
	return e.save(*record)
}

// describe records the state of a device before it is moved into a sandbox.
func (e *Engine) describe(record *store.Record, d plan.Device) error {
	was, err := e.cfg.Kernel.Devices().DescribeDevice(d)
	if err != nil {
		return fmt.Errorf("describe device %s: %w", d.Device, err)
	}
	if was != "" {
		others := slices.DeleteFunc(record.Devices, func(known store.Device) bool { return known.Device == d.Device })
		record.Devices = append(others, store.Device{Device: d.Device, Was: was})
	}
	return nil
}

// inside returns the record of a link that is not visible on the host.
func inside(o plan.Object) (store.Inside, bool) {
	netns, name, ok := plan.InSandbox(o)
	d, _ := o.(plan.Device)
	return store.Inside{Netns: netns, Link: name, Device: d.Device}, ok
}

// staleLinks returns the objects that may have been left over in sandboxes and on
// links, because an earlier engine was killed before it could remove them.
func staleLinks(record store.Record) plan.Plan {
	var p plan.Plan
	for _, at := range record.Inside {
		if at.Device != "" {
			p = append(p, plan.Device{Device: at.Device, Netns: at.Netns, Name: at.Link})
		} else {
			p = append(p, plan.StaleLink{Netns: at.Netns, Name: at.Link})
		}
	}
	for _, v := range record.Virtual {
		p = append(p, plan.VirtualAddress(v))
	}
	return p
}

// before returns the value of the setting before Fairlead changes it. For a link
// that does not exist yet, that is its namespace's default.
func (e *Engine) before(s plan.Sysctl) (string, error) {
	value, err := e.cfg.Kernel.Net().ReadSysctl(s)
	if inherited, ok := s.Inherited(); ok && errors.Is(err, rtnl.ErrNoSetting) {
		return e.cfg.Kernel.Net().ReadSysctl(inherited)
	}
	return value, err
}

// restore sets a setting to the host's earlier value, unless another program has
// changed it since.
func (e *Engine) restore(record *store.Record, s plan.Sysctl) error {
	setting, known := record.Setting(s.Netns, s.Name)
	if !known || !e.isSet(s) {
		return nil
	}
	set := s
	s.Value = setting.Before
	_, err := e.cfg.Kernel.Apply([]plan.Op{{Object: s}})
	if err != nil && !isAbsent(err) {
		return err
	}
	return restoreOverwritten(e.cfg.Kernel, record, set)
}

// isAbsent reports whether the setting does not exist: its link or its sandbox was
// deleted, and the setting with it.
func isAbsent(err error) bool {
	return errors.Is(err, rtnl.ErrNoSetting) || errors.Is(err, os.ErrNotExist)
}

// diff is plan.Diff with the earlier values of the settings that are removed.
func diff(record store.Record, have, want plan.Plan) []plan.Op {
	ops := plan.Diff(have, want)
	for i, op := range ops {
		s, ok := op.Object.(plan.Sysctl)
		if setting, known := record.Setting(s.Netns, s.Name); ok && op.Del && known {
			s.Value = setting.Before
			ops[i].Old = s
		}
	}
	return ops
}

// isSet reports whether the setting exists with Fairlead's value.
func (e *Engine) isSet(s plan.Sysctl) bool {
	now, err := e.cfg.Kernel.Net().ReadSysctl(s)
	return err == nil && now == s.Value
}

// changed returns the settings that Fairlead changed and that still have its value.
func (e *Engine) changed(record store.Record) plan.Plan {
	var p plan.Plan
	for _, s := range record.Settings {
		if o := (plan.Sysctl{Netns: s.Netns, Name: s.Name, Value: s.Value}); e.isSet(o) {
			p = append(p, o)
		}
	}
	return p
}

// forget removes settings from the record that the plan no longer wants: they are
// restored, or another program has changed them. Once removed, objects in
// sandboxes, virtual addresses and devices are removed from the record too.
func (e *Engine) forget(record *store.Record, want plan.Plan, removed bool) error {
	type name struct{ netns, name string }
	wanted := map[name]bool{}
	places, virtual, devices := map[store.Inside]bool{}, map[store.Virtual]bool{}, map[string]bool{}
	for _, o := range want {
		if s, ok := o.(plan.Sysctl); ok {
			wanted[name{s.Netns, s.Name}] = true
		} else if at, ok := inside(o); ok {
			places[at], devices[at.Device] = true, true
		} else if v, ok := o.(plan.VirtualAddress); ok {
			virtual[store.Virtual(v)] = true
		}
	}
	kept := slices.DeleteFunc(slices.Clone(record.Settings), func(s store.Setting) bool {
		return !wanted[name{s.Netns, leader(s)}]
	})
	left := slices.DeleteFunc(slices.Clone(record.Inside), func(at store.Inside) bool { return removed && !places[at] })
	put := slices.DeleteFunc(slices.Clone(record.Virtual), func(v store.Virtual) bool { return removed && !virtual[v] })
	away := slices.DeleteFunc(slices.Clone(record.Devices),
		func(d store.Device) bool { return removed && !devices[d.Device] })
	if len(kept) == len(record.Settings) && len(left) == len(record.Inside) && len(put) == len(record.Virtual) &&
		len(away) == len(record.Devices) {
		return nil
	}
	record.Settings, record.Inside, record.Virtual, record.Devices = kept, left, put, away
	return e.save(*record)
}

func (e *Engine) save(r store.Record) error {
	if err := e.cfg.Store.Save(r); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	e.recall(r)
	return nil
}

func (e *Engine) load() (store.Record, error) {
	r, err := e.cfg.Store.Load()
	if err != nil {
		return r, fmt.Errorf("read record: %w", err)
	}
	e.recall(r)
	return r, nil
}

// recall passes what is recorded of devices to the kernel package.
func (e *Engine) recall(r store.Record) {
	devices := map[string]string{}
	for _, d := range r.Devices {
		devices[d.Device] = d.Was
	}
	e.cfg.Kernel.Devices().RecallDevices(devices)
}
