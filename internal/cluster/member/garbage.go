package member

import (
	"runtime/debug"
	"time"
)

// The changes of records after which memory is returned to the system, and the time after which that happens again:
// the file of the snapshot has the changes by then.
const (
	manyChanges = 4000
	settled     = 10 * time.Second
)

// garbage is the memory that updates have used. Many changes need several times the memory of their result, and come
// at once when a member starts, when many nodes come, or after a long time without etcd. Otherwise the garbage
// collector of an idle process would keep that memory for minutes.
type garbage struct {
	changes int
	again   *time.Timer
}

// left notes that an update with this number of changes was used.
func (g *garbage) left(changes int) {
	if g.changes += changes; g.changes <= manyChanges {
		return
	}
	g.changes = 0
	debug.FreeOSMemory()
	g.stop()
	g.again = time.AfterFunc(settled, debug.FreeOSMemory)
}

// stop forgets what left has planned.
func (g *garbage) stop() {
	if g.again != nil {
		g.again.Stop()
	}
}
