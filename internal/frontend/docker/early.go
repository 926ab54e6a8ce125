package docker

import "fairlead/internal/sandbox"

// restartEarly restarts a container that bound ports before they were published, if the
// engine restarts it by its policy anyway. Other hosts reach such a port although it is
// not published: for example the host lost its power, and the engine started the
// container before this process ran. Each container is restarted only once, so that a
// container that is always faster does not restart for ever. If it is uncertain whether
// ports were bound before, nothing is restarted. A goroutine of its own asks the engine,
// which may not answer before it has started other containers, for which it waits for
// the worker.
func (l *Labels) restartEarly(c sandbox.Labelled) {
	needs, certain, err := l.Workloads.NeedsRestart(attachmentOf(c.ID))
	l.warn("publish by a label", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || !needs || !certain || l.restarted[c.ID] {
		return
	}
	l.restarted[c.ID] = true
	l.all.Go(func() {
		restarted, err := l.Engine.RestartByPolicy(l.life, c.ID)
		l.warn("restart a container that bound ports before they were published", err)
		if restarted {
			l.Log.Warn("restarted a container that bound ports before they were published", "container", c.Name)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if !restarted { // try again when the engine answers
			delete(l.restarted, c.ID)
		}
	})
}
