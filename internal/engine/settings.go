package engine

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// remember writes the record, with the value that each setting has before we
// change it, so that an interrupted apply can be undone.
func (e *Engine) remember(record *store.Record, set []plan.Op) error {
	for _, op := range set {
		s, ok := op.Object.(plan.Sysctl)
		if _, known := record.Setting(op.Object.Key()); !ok || known {
			continue
		}
		value, err := e.cfg.Kernel.ReadSysctl(s)
		if errors.Is(err, kernel.ErrNoSetting) {
			continue // a link's setting, which comes and goes with the link
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", s.Name, err)
		}
		record.Settings = append(record.Settings, store.Setting{Sysctl: s, Before: value})
	}
	return e.save(*record)
}

// restore puts a setting back to what the host had, unless someone else has
// changed it since.
func (e *Engine) restore(record *store.Record, s plan.Sysctl) error {
	setting, known := record.Setting(s.Key())
	if !known || !e.isSet(s) {
		return nil
	}
	s.Value = setting.Before
	return e.cfg.Kernel.WriteSysctl(s)
}

// isSet reports whether the setting is there and has our value.
func (e *Engine) isSet(s plan.Sysctl) bool {
	now, err := e.cfg.Kernel.ReadSysctl(s)
	return err == nil && now == s.Value
}

// forget drops the settings that have been put back.
func (e *Engine) forget(record *store.Record, dels []plan.Op) error {
	kept := slices.DeleteFunc(slices.Clone(record.Settings), func(s store.Setting) bool {
		return slices.ContainsFunc(dels, func(op plan.Op) bool { return op.Object.Key() == s.Sysctl.Key() })
	})
	if len(kept) == len(record.Settings) {
		return nil
	}
	record.Settings = kept
	return e.save(*record)
}

func (e *Engine) save(r store.Record) error {
	if err := e.cfg.Store.Save(r); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}
