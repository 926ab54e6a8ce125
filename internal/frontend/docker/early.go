package docker

import (
	"strings"

	"fairlead/internal/sandbox"
)

// restartedKey begins the keys of the notes about containers that restartEarly has restarted, or is restarting. A
// reboot deletes them.
const restartedKey = "docker restarted "

// restartEarly restarts a container that bound ports before they were published, if the
// engine restarts it by its policy anyway. Other hosts reach such a port although it is
// not published: for example the host lost its power, and the engine started the
// container before this process ran. A note is written before that, so that neither this
// nor a later process of the boot restarts it again before it was seen to bind no port
// early: a container that is always faster does not restart for ever. If it is uncertain
// whether ports were bound before, nothing is restarted. A goroutine of its own asks the
// engine, which may not answer before it has started other containers, for which it waits
// for the worker.
func (l *Labels) restartEarly(c sandbox.Labelled) {
	needs, certain, err := l.Workloads.NeedsRestart(attachmentOf(c.ID))
	l.warn("publish by a label", err)
	if err != nil || !certain {
		return
	}
	l.noting.Lock()
	defer l.noting.Unlock()
	_, restarted := l.Passing.All()[restartedKey+c.ID]
	switch {
	case restarted && !needs:
		l.put(l.Passing, map[string]any{restartedKey + c.ID: nil})
	case needs && !restarted && l.put(l.Passing, map[string]any{restartedKey + c.ID: true}):
		l.all.Go(func() { l.restart(c) })
	}
}

// restart asks the engine to restart a container that bound ports early.
func (l *Labels) restart(c sandbox.Labelled) {
	restarted, err := l.Engine.RestartByPolicy(l.life, c.ID)
	l.warn("restart a container that bound ports before they were published", err)
	if restarted && err == nil {
		l.Log.Warn("restarted a container that bound ports before they were published", "container", c.Name)
	}
	if restarted {
		return
	}
	l.noting.Lock()
	defer l.noting.Unlock()
	l.put(l.Passing, map[string]any{restartedKey + c.ID: nil}) // try again when the engine answers
}

// unrestart removes the notes about restarts of containers that do not exist any more. The caller must have locked
// noting.
func (l *Labels) unrestart(exists map[string]bool) {
	changes := map[string]any{}
	for key := range l.Passing.All() {
		if id, is := strings.CutPrefix(key, restartedKey); is && !exists[id] {
			changes[key] = nil
		}
	}
	l.put(l.Passing, changes)
}
