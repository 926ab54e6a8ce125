package store

// CloseLasting and CloseBoot close one database, so that the next write to it fails: the other one then has what
// it has if the process is killed between both.
func (f *File) CloseLasting() error { return f.lasting.db.Close() }

// CloseBoot is described at CloseLasting.
func (f *File) CloseBoot() error { return f.boot.db.Close() }
