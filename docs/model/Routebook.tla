----------------------------- MODULE Routebook -----------------------------
(* How Routebook keeps the route table: registrations, heartbeats,         *)
(* sessions, lost connections, expiry, the leader's lease, and a store     *)
(* that fails, comes back, or loses its last writes.                       *)
(*                                                                         *)
(* One action is one script in the store or one step of a process. What is *)
(* decided in a worker and carried out later waits in `closes`, `verdicts` *)
(* and `expiries`; a suspended worker carries it out as late as it likes.  *)
(* A tick is the time in which every broker sends a heartbeat and every    *)
(* worker renews its lease, so `Tick` waits for all work that can be done. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Brokers, Workers,
  LastTick,             \* time ends here
  MaxFaults,            \* number of faults in one behaviour
  Timeout, Lease,       \* of a broker and of a leader or worker, in ticks
  Window                \* recovery window, in ticks

\* The protections. `docs/model/README.md` says what happens without each.
CONSTANTS
  ComparesIncarnation,  \* a removal names the incarnation that it decided about
  ChecksSessions,       \* a lost connection removes nothing that has a session
  NamesLoss,            \* a verdict is about one loss, not about any loss of the incarnation
  ComparesStamps,       \* a close request leaves alone a session that is newer
  ChecksDeadline,       \* an expiry checks the deadline again
  FencesLeader,         \* a script of the leader compares the whole lease
  TokenFromClock,       \* a token is at least the time
  PausesClock,          \* deadlines stop while no worker can receive heartbeats
  ClearsDigests,        \* what changes a repeat's effect clears its digest
  ConfirmsLastEntry,    \* a worker compares the last entry it saw, not its number
  KeepsOldTable,        \* after a loss, answers are old \cup new
  PausesWindow,         \* the recovery window does not run without the store
  WarmsUp               \* a cold worker on a young store answers "not ready"

None == "none"
Max(a, b) == IF a > b THEN a ELSE b
PauseAfter == 1  \* ticks without a renewal that are an outage

VARIABLES
  now,       \* the store's clock
  failedAt,  \* when the store failed; 0 while it can be reached
  s,         \* the store's data
  copy,      \* what a failover would bring back
  serial,    \* source of incarnations, entry ids and names of histories
  faults,    \* number of faults so far
  worker,    \* worker -> its process
  broker,    \* broker -> its process
  closes,    \* close requests on their way: worker, broker, incarnation, stamp
  verdicts,  \* removals decided after a refused dial: worker, broker, incarnation
  expiries,  \* removals decided after a scan: worker, broker, incarnation, lease
  ghost      \* what the invariants remember

vars == <<now, failedAt, s, copy, serial, faults, worker, broker, closes, verdicts, expiries, ghost>>

Fault == faults < MaxFaults /\ faults' = faults + 1
NoSession == [inc |-> 0, stamp |-> 0]
NotLost == [inc |-> 0, by |-> None, at |-> 0]

Empty(time, history) == [
  inst |-> [b \in Brokers |-> 0],           \* incarnation, 0 when it is not registered
  due |-> [b \in Brokers |-> 0],            \* on the deadline clock
  topics |-> [b \in Brokers |-> FALSE],     \* its topics are in the table
  digest |-> [b \in Brokers |-> FALSE],     \* its registration digest is valid
  sess |-> [w \in Workers |-> [b \in Brokers |-> NoSession]],
  lost |-> [b \in Brokers |-> NotLost],
  leases |-> [w \in Workers |-> 0],         \* ends of the workers' leases, deadline clock
  leader |-> [token |-> 0, by |-> None, ends |-> 0], token |-> 0,
  paused |-> 0, alive |-> time,             \* paused_ms, alive_ms
  history |-> history, log |-> <<>>, born |-> time]

Cold == [state |-> "run", cold |-> TRUE, ready |-> FALSE, table |-> [b \in Brokers |-> 0], old |-> {},
  history |-> 0, log |-> 0, entry |-> 0, spent |-> 0, stamp |-> 0]

Init ==
  /\ now = 1 /\ failedAt = 0 /\ serial = 1 /\ faults = 0
  /\ s = [Empty(1, 1) EXCEPT !.born = 0] /\ copy = s
  /\ worker = [w \in Workers |-> Cold]
  /\ broker = [b \in Brokers |-> [isUp |-> TRUE, conn |-> None, sent |-> FALSE]]
  /\ closes = {} /\ verdicts = {} /\ expiries = {}
  /\ ghost = [wronged |-> FALSE, unfenced |-> FALSE, reused |-> FALSE, token |-> 0,
       registered |-> {}, acked |-> {}, shown |-> [w \in Workers |-> {}]]

isUp == failedAt = 0  \* the store
Runs(w) == worker[w].state = "run"
CanWrite(w) == isUp /\ Runs(w)
Answers(w) == {b \in Brokers : worker[w].table[b] # 0} \cup worker[w].old

\* The store after its deadline clock was read at some time: a gap in the renewals is added to `paused`.
ClockedAt(st, time) ==
  IF PausesClock /\ time - st.alive > PauseAfter
  THEN [st EXCEPT !.paused = @ + (time - st.alive), !.alive = time] ELSE st
Clocked(st) == ClockedAt(st, now)
DeadlineNow(st) == now - st.paused

Appended(st, entry) == [st EXCEPT !.log = Append(@, entry)]
HasSession(st, b, inc) == \E w \in Workers : st.sess[w][b].inc = inc
Without(st, b, entry) == Appended([st EXCEPT !.inst[b] = 0, !.due[b] = 0, !.topics[b] = FALSE,
                                             !.digest[b] = FALSE, !.lost[b] = NotLost], entry)

Forget(b) == [ghost EXCEPT !.registered = @ \ {b}, !.acked = @ \ {b}, !.shown = [w \in Workers |-> @[w] \ {b}]]

Removed(b, w, mayBe) ==  \* the effects on ghost of removing b now
  LET isHealthy == broker[b].isUp /\ b \in ghost.registered IN
  [ghost EXCEPT !.wronged = @ \/ isHealthy, !.acked = @ \ {b}, !.unfenced = @ \/ ~mayBe]

(* Registrations and heartbeats: register_broker and touch_broker *)
Heartbeat(b, w) ==
  /\ broker[b].isUp /\ broker[b].conn \in {None, w} /\ ~broker[b].sent /\ CanWrite(w)
  /\ LET st == Clocked(s)
         isNew == st.inst[b] = 0
         inc == IF isNew THEN serial + 1 ELSE st.inst[b]
         isTouch == ~isNew /\ st.digest[b]
         \* Every session has a higher stamp. Only those that a close request could confuse are told apart here.
         stamp == worker[w].stamp + IF \E c \in closes : c.by = w THEN 1 ELSE 0
         heard == [st EXCEPT !.inst[b] = inc, !.due[b] = DeadlineNow(st) + Timeout,
                             !.sess[w][b] = [inc |-> inc, stamp |-> Max(stamp, st.sess[w][b].stamp)],
                             !.lost[b] = NotLost,
                             !.leases[w] = IF @ = 0 THEN DeadlineNow(st) + Lease ELSE @]
         full == [heard EXCEPT !.topics[b] = TRUE, !.digest[b] = TRUE]
         changes == isNew \/ ~heard.topics[b]
     IN /\ s' = IF isTouch THEN heard ELSE IF changes THEN Appended(full, serial + 2) ELSE full
        /\ serial' = IF isTouch \/ ~changes THEN serial ELSE serial + 2
        /\ worker' = [worker EXCEPT ![w].stamp = stamp]
        /\ broker' = [broker EXCEPT ![b].conn = w, ![b].sent = TRUE]
        /\ ghost' = [ghost EXCEPT !.registered = @ \cup {b}, !.acked = @ \cup {b}]
  /\ UNCHANGED <<now, failedAt, copy, faults, closes, verdicts, expiries>>

\* Operators delete a topic; the broker's next registration restores it.
DeleteTopic(b) ==
  /\ Fault /\ isUp /\ s.topics[b] /\ serial' = serial + 1
  /\ s' = Appended([s EXCEPT !.topics[b] = FALSE, !.digest[b] = IF ClearsDigests THEN FALSE ELSE @], serial + 1)
  /\ ghost' = [ghost EXCEPT !.acked = @ \ {b}]
  /\ UNCHANGED <<now, failedAt, copy, worker, broker, closes, verdicts, expiries>>

(* Connections, sessions, lost connections *)
CloseRequest(w, b) ==
  IF w = None \/ worker[w].state = "dead" THEN {}
  ELSE {[by |-> w, broker |-> b, inc |-> s.sess[w][b].inc, stamp |-> worker[w].stamp]}

\* The connection is reset; the broker may connect anywhere.
Disconnect(b) ==
  /\ broker[b].conn # None /\ (faults < MaxFaults \/ worker[broker[b].conn].state # "run")
  /\ faults' = IF Runs(broker[b].conn) THEN faults + 1 ELSE faults
  /\ closes' = closes \cup CloseRequest(broker[b].conn, b)
  /\ broker' = [broker EXCEPT ![b].conn = None, ![b].sent = FALSE]
  /\ UNCHANGED <<now, failedAt, s, copy, serial, worker, verdicts, expiries, ghost>>

\* close_sessions
Close(c) ==
  /\ CanWrite(c.by)
  /\ LET held == s.sess[c.by][c.broker]
         ends == ~ComparesStamps \/ held.stamp <= c.stamp
         st == IF ends THEN [s EXCEPT !.sess[c.by][c.broker] = NoSession] ELSE s
         isLost == c.inc # 0 /\ st.inst[c.broker] = c.inc /\ ~HasSession(st, c.broker, c.inc)
     IN /\ serial' = IF isLost THEN serial + 1 ELSE serial
        /\ s' = IF isLost THEN [st EXCEPT !.lost[c.broker] = [inc |-> c.inc, by |-> c.by, at |-> serial + 1]] ELSE st
  /\ closes' = closes \ {c}
  /\ UNCHANGED <<now, failedAt, copy, faults, worker, broker, verdicts, expiries, ghost>>

\* The worker that investigates dials the broker's address.
Dial(b) ==
  LET loss == s.lost[b]
      verdict == [by |-> loss.by, broker |-> b, inc |-> loss.inc, at |-> loss.at]
  IN
  /\ loss.inc # 0 /\ CanWrite(loss.by) /\ verdict \notin verdicts
  /\ IF broker[b].isUp THEN s' = [s EXCEPT !.lost[b] = NotLost] /\ UNCHANGED verdicts
                       ELSE verdicts' = verdicts \cup {verdict} /\ UNCHANGED s
  /\ UNCHANGED <<now, failedAt, copy, serial, faults, worker, broker, closes, expiries, ghost>>

\* unregister_brokers with the cause connection-lost
RemoveLost(v) ==
  /\ CanWrite(v.by)
  /\ LET b == v.broker
         isSame == ~ComparesIncarnation \/ s.inst[b] = v.inc
         isPending == s.lost[b].inc = v.inc /\ s.lost[b].at = v.at
         mayRemove == s.inst[b] # 0 /\ isSame /\ (~NamesLoss \/ isPending) /\ (~ChecksSessions \/ ~HasSession(s, b, s.inst[b]))
     IN IF mayRemove
        THEN s' = Without(s, b, serial + 1) /\ serial' = serial + 1 /\ ghost' = Removed(b, v.by, TRUE)
        ELSE /\ s' = IF isPending THEN [s EXCEPT !.lost[b] = NotLost] ELSE s
             /\ UNCHANGED <<serial, ghost>>
  /\ verdicts' = verdicts \ {v}
  /\ UNCHANGED <<now, failedAt, copy, faults, worker, broker, closes, expiries>>

(* Workers' leases, the leader, expiry *)
HasLeaderAt(st, time) == st.leader.token # 0 /\ st.leader.ends > time
Leads(w, token) == HasLeaderAt(s, now) /\ s.leader.token = token /\ s.leader.by = w
LeadsNow(w) == HasLeaderAt(s, now) /\ s.leader.by = w
IsFenced(w, token) == FencesLeader /\ ~Leads(w, token)

\* renew_worker_lease of all workers that run. A worker that was removed opens its sessions again.
RenewedAt(time) ==
  LET st == ClockedAt(s, time)
      reopened(w) == [b \in Brokers |-> IF st.leases[w] = 0 /\ broker[b].conn = w /\ st.inst[b] # 0
                        THEN [inc |-> st.inst[b], stamp |-> worker[w].stamp] ELSE st.sess[w][b]]
  IN [st EXCEPT !.alive = IF \E w \in Workers : Runs(w) THEN time ELSE @,
                !.leases = [w \in Workers |-> IF Runs(w) THEN time - st.paused + Lease ELSE @[w]],
                !.sess = [w \in Workers |-> IF Runs(w) THEN reopened(w) ELSE @[w]]]

\* acquire_lease or renew_lease by worker w
LedBy(st, w, time) ==
  LET next == IF TokenFromClock THEN Max(st.token + 1, time) ELSE st.token + 1 IN
  IF HasLeaderAt(st, time)
  THEN IF st.leader.by = w THEN [st EXCEPT !.leader.ends = time + Lease] ELSE st
  ELSE [st EXCEPT !.leader = [token |-> next, by |-> w, ends |-> time + Lease], !.token = next]

\* scan_deadlines: what the leader decides to remove
DueAt(st, time) == {[by |-> st.leader.by, broker |-> b, inc |-> st.inst[b], token |-> st.leader.token] :
  b \in {d \in Brokers : st.inst[d] # 0 /\ st.due[d] < time - st.paused /\ Runs(st.leader.by)}}

\* expire_brokers
Expire(e) ==
  /\ CanWrite(e.by)
  /\ LET st == Clocked(s)
         b == e.broker
         isDue == ~ChecksDeadline \/ st.due[b] < DeadlineNow(st)
         isSame == ~ComparesIncarnation \/ st.inst[b] = e.inc
     IN IF ~IsFenced(e.by, e.token) /\ st.inst[b] # 0 /\ isDue /\ isSame
        THEN /\ s' = Without(st, b, serial + 1) /\ serial' = serial + 1
             /\ ghost' = Removed(b, e.by, Leads(e.by, e.token))
        ELSE s' = s /\ UNCHANGED <<serial, ghost>>
  /\ expiries' = expiries \ {e}
  /\ UNCHANGED <<now, failedAt, copy, faults, worker, broker, closes, verdicts>>

HasEnded(w) == s.leases[w] # 0 /\ s.leases[w] < DeadlineNow(Clocked(s))

\* remove_worker, then adopt_lost_connections
RemoveWorker(leader, w) ==
  /\ CanWrite(leader) /\ LeadsNow(leader) /\ HasEnded(w)
  /\ LET st == Clocked(s)
         has(b) == st.sess[w][b].inc # 0 /\ st.sess[w][b].inc = st.inst[b]
         bare == [st EXCEPT !.sess[w] = [b \in Brokers |-> NoSession], !.leases[w] = 0]
         moved == [b \in Brokers |-> IF has(b)
                     THEN Max(st.due[b], st.leases[w] - Lease + Timeout) ELSE st.due[b]]
         lost == [b \in Brokers |-> IF has(b) /\ ~HasSession(bare, b, st.inst[b])
                    THEN [inc |-> st.inst[b], by |-> leader, at |-> serial + 1]
                    ELSE IF st.lost[b].by = w THEN [st.lost[b] EXCEPT !.by = leader] ELSE st.lost[b]]
     IN s' = [bare EXCEPT !.due = moved, !.lost = lost]
  /\ serial' = serial + 1
  /\ UNCHANGED <<now, failedAt, copy, faults, worker, broker, closes, verdicts, expiries, ghost>>

\* All workers renew their leases, one becomes or stays the leader, and the leader scans.
Beat(w, time) ==
  LET led == LedBy(RenewedAt(time), w, time) IN
  /\ s' = led /\ expiries' = expiries \cup DueAt(led, time)
  /\ ghost' = [ghost EXCEPT !.token = Max(@, led.token),
       !.reused = @ \/ (led.leader # s.leader /\ led.token # s.token /\ led.token <= ghost.token)]

TakeLead(w) ==
  /\ CanWrite(w) /\ ~HasLeaderAt(s, now) /\ Beat(w, now)
  /\ UNCHANGED <<now, failedAt, copy, serial, faults, worker, broker, closes, verdicts>>

(* Replicas: what workers answer *)
Confirms(w) ==
  LET me == worker[w] IN
  /\ me.log <= Len(s.log)
  /\ ~ConfirmsLastEntry \/ me.log = 0 \/ s.log[me.log] = me.entry

LastEntry == IF s.log = <<>> THEN 0 ELSE s.log[Len(s.log)]
IsYoung == now < s.born + Window
IsLoss(w) == worker[w].history = s.history /\ ~Confirms(w)
IsBehind(w) == worker[w].history # s.history \/ worker[w].log # Len(s.log)
CanEndRecovery(w) == worker[w].old # {} /\ worker[w].spent >= Window
CanBeReady(w) == ~worker[w].ready /\ (~IsYoung \/ ~WarmsUp)
HasToFollow(w) == IsLoss(w) \/ IsBehind(w) \/ CanEndRecovery(w) \/ CanBeReady(w)

\* begin_history: the store lost what this worker has seen.
NoticeLoss(w) ==
  /\ CanWrite(w) /\ IsLoss(w)
  /\ s' = [s EXCEPT !.history = serial + 1] /\ serial' = serial + 1
  /\ UNCHANGED <<now, failedAt, copy, faults, worker, broker, closes, verdicts, expiries, ghost>>

\* Reads the history, or all of the store when it begins a new one.
Follow(w) ==
  LET me == worker[w]
      isNew == me.history # s.history
      lacked == IF KeepsOldTable /\ ~me.cold THEN {b \in Answers(w) : s.inst[b] = 0} ELSE {}
      old == IF isNew THEN lacked ELSE IF CanEndRecovery(w) THEN {} ELSE {b \in me.old : s.inst[b] = 0}
      ready == me.ready \/ CanBeReady(w)
  IN
  /\ CanWrite(w) /\ ~IsLoss(w) /\ HasToFollow(w)
  /\ worker' = [worker EXCEPT ![w] = [me EXCEPT
       !.table = IF IsBehind(w) THEN s.inst ELSE @, !.entry = IF IsBehind(w) THEN LastEntry ELSE @,
       !.log = Len(s.log), !.history = s.history, !.cold = FALSE, !.ready = ready, !.old = old,
       !.spent = IF isNew \/ old = {} THEN 0 ELSE @]]
  /\ ghost' = [ghost EXCEPT !.shown[w] = IF ready
       THEN (@ \cap ghost.registered) \cup {b \in ghost.registered : s.inst[b] # 0} ELSE @]
  /\ UNCHANGED <<now, failedAt, s, copy, serial, faults, broker, closes, verdicts, expiries>>

(* Faults *)
BrokerDies(b) ==
  /\ Fault /\ broker[b].isUp
  /\ closes' = closes \cup CloseRequest(broker[b].conn, b)
  /\ broker' = [broker EXCEPT ![b] = [isUp |-> FALSE, conn |-> None, sent |-> FALSE]]
  /\ ghost' = Forget(b)
  /\ UNCHANGED <<now, failedAt, s, copy, serial, worker, verdicts, expiries>>

BrokerStarts(b) ==
  /\ ~broker[b].isUp /\ broker' = [broker EXCEPT ![b].isUp = TRUE]
  /\ UNCHANGED <<now, failedAt, s, copy, serial, faults, worker, closes, verdicts, expiries, ghost>>

WorkerDies(w) ==
  /\ Fault /\ worker[w].state # "dead"
  /\ worker' = [worker EXCEPT ![w] = [Cold EXCEPT !.state = "dead"]]
  /\ broker' = [b \in Brokers |-> IF broker[b].conn = w THEN [broker[b] EXCEPT !.conn = None, !.sent = FALSE] ELSE broker[b]]
  /\ closes' = {c \in closes : c.by # w} /\ verdicts' = {v \in verdicts : v.by # w}
  /\ expiries' = {e \in expiries : e.by # w}
  /\ ghost' = [ghost EXCEPT !.shown[w] = {}]
  /\ UNCHANGED <<now, failedAt, s, copy, serial>>

Suspend(w) ==
  /\ Fault /\ Runs(w) /\ worker' = [worker EXCEPT ![w].state = "stuck"]
  /\ UNCHANGED <<now, failedAt, s, copy, serial, broker, closes, verdicts, expiries, ghost>>
Resume(w) ==
  /\ worker[w].state = "stuck" /\ worker' = [worker EXCEPT ![w].state = "run"]
  /\ UNCHANGED <<now, failedAt, s, copy, serial, faults, broker, closes, verdicts, expiries, ghost>>

StoreFails ==
  /\ Fault /\ isUp /\ failedAt' = now /\ \A b \in Brokers : broker[b].isUp => broker[b].sent
  /\ UNCHANGED <<now, s, copy, serial, worker, broker, closes, verdicts, expiries, ghost>>
StoreReturns ==
  /\ failedAt \in 1..(now - 1) /\ failedAt' = 0
  /\ UNCHANGED <<now, s, copy, serial, faults, worker, broker, closes, verdicts, expiries, ghost>>

Lost ==  \* it takes some seconds; then the next registration of each broker repairs the table
  /\ failedAt' = now
  /\ broker' = [b \in Brokers |-> [broker[b] EXCEPT !.sent = FALSE]]
  /\ ghost' = [ghost EXCEPT !.acked = {}]
  /\ UNCHANGED worker

Failover ==  \* the replica that takes over has not received the writes of this tick
  /\ Fault /\ isUp /\ s # copy /\ s' = copy /\ Lost
  /\ UNCHANGED <<now, copy, serial, closes, verdicts, expiries>>

StoreEmptied ==
  /\ Fault /\ isUp /\ s' = Empty(now, serial + 1) /\ copy' = s' /\ serial' = serial + 1 /\ Lost
  /\ UNCHANGED <<now, closes, verdicts, expiries>>

(* Time passes when everything that can be done in a second has been done. *)
Quiet ==
  isUp =>
    /\ \A b \in Brokers : broker[b].isUp /\ (\E w \in Workers : Runs(w)) => broker[b].sent /\ Runs(broker[b].conn)
    /\ \A w \in Workers : Runs(w) =>
         /\ ~HasToFollow(w) /\ ~\E b \in Brokers : s.lost[b].by = w
         /\ ~\E r \in closes \cup verdicts \cup expiries : r.by = w
         /\ LeadsNow(w) => ~\E x \in Workers : HasEnded(x)

Tick ==
  /\ now < LastTick /\ Quiet /\ now' = now + 1
  /\ broker' = [b \in Brokers |-> [broker[b] EXCEPT !.sent = FALSE]]
  /\ worker' = [w \in Workers |-> [worker[w] EXCEPT
       !.spent = IF worker[w].old # {} /\ Runs(w) /\ (isUp \/ ~PausesWindow) THEN @ + 1 ELSE @]]
  /\ IF isUp /\ \E w \in Workers : Runs(w)
     THEN /\ \E w \in {x \in Workers : Runs(x)} :
               /\ HasLeaderAt(s, now + 1) => w = s.leader.by \/ ~Runs(s.leader.by)
               /\ Beat(w, now + 1)
          /\ copy' = IF faults < MaxFaults THEN s' ELSE copy
     ELSE UNCHANGED <<s, expiries, ghost, copy>>
  /\ UNCHANGED <<failedAt, serial, faults, closes, verdicts>>

Next ==
  \/ Tick \/ StoreFails \/ StoreReturns \/ Failover \/ StoreEmptied
  \/ \E b \in Brokers : DeleteTopic(b) \/ Disconnect(b) \/ Dial(b) \/ BrokerDies(b) \/ BrokerStarts(b)
  \/ \E w \in Workers : \/ TakeLead(w) \/ NoticeLoss(w) \/ Follow(w) \/ WorkerDies(w) \/ Suspend(w) \/ Resume(w)
                        \/ \E b \in Brokers : Heartbeat(b, w)
                        \/ \E x \in Workers : RemoveWorker(w, x)
  \/ \E c \in closes : Close(c)
  \/ \E v \in verdicts : RemoveLost(v)
  \/ \E e \in expiries : Expire(e)

Symmetry == Permutations(Workers)
Spec == Init /\ [][Next]_vars

(* Invariants, named as in docs/reliability.md *)
\* I1: a broker that sends heartbeats is never removed.
I1_HealthyBrokersStay == ~ghost.wronged

\* I2: a dead broker is removed within its timeout, once the store and a worker work.
I2_DeadBrokersGo ==
  (isUp /\ s.alive = now /\ Quiet /\ \A w \in Workers : Runs(w)) =>
    \A b \in Brokers : ~broker[b].isUp => s.inst[b] = 0 \/ DeadlineNow(Clocked(s)) <= s.due[b]

\* I4: workers that follow the same history up to the same entry have the same table.
I4_SameTables ==
  (isUp /\ Quiet) => \A w \in Workers : Runs(w) => worker[w].table = s.inst

\* I5: a known topic of a healthy broker is never answered with "no such topic".
I5_NeverNoSuchTopic ==
  \A w \in Workers : worker[w].ready => ghost.shown[w] \ Answers(w) = {}

\* I7: no write of a fenced leader is accepted, and no token is used twice.
I7_Fenced == ~ghost.unfenced /\ ~ghost.reused

\* I9: an acknowledged registration is in the store with its topics.
I9_AcknowledgedSurvives == \A b \in ghost.acked : s.inst[b] # 0 /\ s.topics[b]

\* A connected broker has a session at its worker, so its death is noticed at once.
SessionsAreKept ==
  (isUp /\ Quiet) => \A b \in Brokers : broker[b].conn # None /\ Runs(broker[b].conn) /\ s.leases[broker[b].conn] # 0 =>
    s.sess[broker[b].conn][b].inc = s.inst[b]
=============================================================================
