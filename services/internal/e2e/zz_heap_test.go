package e2e_test
import ("testing";"os";"runtime/pprof";"runtime")
func init(){ dumpHeap=func(t *testing.T){ runtime.GC(); f,_:=os.Create("/tmp/heap.pprof"); pprof.WriteHeapProfile(f); f.Close() } }
