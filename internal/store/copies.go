package store

import (
	"os"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/boltfile"

	"go.etcd.io/bbolt"
)

// copyEvery is the least time between two copies of a database, and the greatest age of a change that the copy
// does not have.
const copyEvery = 5 * time.Second

// copier copies a database after it has changed. It runs no timer while the database does not change.
type copier struct {
	db     *bbolt.DB
	opt    boltfile.Options
	failed func(error)

	wanted      alarm.Signal
	stop, ended chan struct{}
}

// startCopies copies a database now, if it differs from its copy, and after each change until end. failed is
// called if a copy cannot be written; it can be nil.
func startCopies(db *bbolt.DB, opt boltfile.Options, failed func(error)) *copier {
	c := &copier{db: db, opt: opt, failed: failed, wanted: alarm.NewSignal(), stop: make(chan struct{}),
		ended: make(chan struct{})}
	if !boltfile.CopyIsCurrent(db, opt) {
		c.copy()
	}
	go c.run()
	return c
}

// changed plans a copy.
func (c *copier) changed() {
	c.wanted.Send()
}

func (c *copier) run() {
	defer close(c.ended)
	for {
		select {
		case <-c.wanted:
		case <-c.stop:
			select {
			case <-c.wanted:
				c.copy()
			default:
			}
			return
		}
		select {
		case <-time.After(copyEvery):
		case <-c.stop:
		}
		c.copy()
	}
}

func (c *copier) copy() {
	if err := boltfile.Copy(c.db, c.opt); err != nil && c.failed != nil {
		c.failed(err)
	}
}

// end copies the database if it has changed, and stops.
func (c *copier) end() {
	close(c.stop)
	<-c.ended
}

// readCopy describes the copy of a database.
func readCopy(path string) (boltfile.Summary, error) {
	file, err := os.Open(boltfile.CopyOf(path))
	if err != nil {
		return boltfile.Summary{}, err
	}
	defer file.Close()
	return boltfile.Read(file, boltfile.Options{Format: Format})
}
