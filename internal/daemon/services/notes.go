package services

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
)

// The keys of notes, or their prefixes.
const (
	healthNote    = "health of real servers"
	containerNote = "container "
)

// saveDrains saves the drains with these keys for later processes. A drain that a
// command requested of a server on another host survives a reboot.
func (s *Services) saveDrains(keys ...pool.Key) {
	if s.cfg.Passing == nil || len(keys) == 0 {
		return
	}
	passing, lasting := map[string]any{}, map[string]any{}
	for _, key := range keys {
		name := key.Note()
		passing[name], lasting[name] = nil, nil
		switch drain := s.drains[key]; {
		case drain == nil:
		case drain.Asked && drain.Endpoint == "":
			lasting[name] = drain
		default:
			passing[name] = drain
		}
	}
	s.state.Warn("save the drains", s.cfg.Passing.Put(passing))
	s.state.Warn("save the drains", s.cfg.Lasting.Put(lasting))
}

// saveHealth saves the state of the checks if it has changed.
func (s *Services) saveHealth() {
	s.state.Lock()
	unsaved := s.unsaved
	s.unsaved = false
	s.state.Unlock()
	if unsaved && s.cfg.Passing != nil {
		s.state.Warn("save the health of real servers",
			s.cfg.Passing.Put(map[string]any{healthNote: s.health.Export()}))
	}
}

// RestoreNotes reads the notes of an earlier process. It deletes notes of containers
// without an attachment: their engine reports them again if they run.
func (s *Services) RestoreNotes(w model.Desired) {
	if s.cfg.Passing == nil {
		return
	}
	for _, notes := range []Notes{s.cfg.Lasting, s.cfg.Passing} {
		for key, text := range notes.All() {
			s.state.Warn("read note "+key, s.restoreNote(key, text))
		}
	}
	gone := map[string]any{}
	maps.DeleteFunc(s.containers, func(ref string, _ pool.Container) bool {
		attached := slices.ContainsFunc(w.Attachments, func(a model.Attachment) bool { return a.Ref == ref })
		if !attached {
			gone[containerNote+ref] = nil
		}
		return !attached
	})
	s.state.Warn("forget containers", s.cfg.Passing.Put(gone))
}

func (s *Services) restoreNote(key string, text json.RawMessage) error {
	ref, isContainer := strings.CutPrefix(key, containerNote)
	switch rest, isDrain := strings.CutPrefix(key, pool.DrainNote); {
	case key == healthNote:
		return json.Unmarshal(text, &s.savedHealth)
	case isContainer:
		var c pool.Container
		err := json.Unmarshal(text, &c)
		s.containers[ref] = c
		return err
	case isDrain:
		space := max(0, strings.LastIndexByte(rest, ' '))
		service, at := rest[:space], strings.TrimSpace(rest[space:])
		var drain pool.Drain
		real, err := netip.ParseAddrPort(at)
		if err == nil {
			err = json.Unmarshal(text, &drain)
		}
		if err != nil {
			return err
		}
		s.drains[pool.Key{Service: service, At: real}] = &drain
		s.restoreLeaving(service, real, drain)
	}
	return nil
}

// restoreLeaving makes a server whose removal is in progress a member of the earlier
// pool.
func (s *Services) restoreLeaving(service string, at netip.AddrPort, drain pool.Drain) {
	if !drain.Leaving {
		return
	}
	s.pools[service] = s.pools[service].Restore(at, drain)
}
