//! What each operation does to the server's state.

use spindle_nfs::Status;
use spindle_nfs::wire::{EXCHANGED_CONFIRMED, UPDATE_CONFIRMED, attribute, operation};
use spindle_nfs::xdr::{Put, Reader, Violation};

use super::{ClientState, Server, SessionState, SlotState};

type Answer = Result<(Status, Vec<u8>), Violation>;

const HANDLE: &[u8] = b"the file";

pub const LEASE_S: u32 = 60;

impl Server {
    pub fn outside_a_session(&mut self, number: u32, reader: &mut Reader<'_>) -> Answer {
        match number {
            operation::EXCHANGE_ID => self.exchange_id(reader),
            operation::CREATE_SESSION => self.create_session(reader),
            operation::BIND_CONN_TO_SESSION => {
                let session: [u8; 16] = reader.array()?;
                reader.array::<8>()?;
                if !self.sessions.contains_key(&session) {
                    return refused(Status::BADSESSION);
                }
                self.bound.insert((session, self.serving));
                let mut body = session.to_vec();
                body.put_u32(1);
                body.put_u32(0);
                Ok((Status::OK, body))
            }
            operation::DESTROY_SESSION => {
                let session: [u8; 16] = reader.array()?;
                let is_bound = self.bound.contains(&(session, self.serving));
                if self.checks_binding && !is_bound && self.sessions.contains_key(&session) {
                    return refused(Status::CONN_NOT_BOUND_TO_SESSION);
                }
                match self.sessions.remove(&session) {
                    Some(_) => Ok((Status::OK, Vec::new())),
                    None => refused(Status::BADSESSION),
                }
            }
            _ => refused(Status::OP_NOT_IN_SESSION),
        }
    }

    fn exchange_id(&mut self, reader: &mut Reader<'_>) -> Answer {
        let verifier = reader.array()?;
        let owner = reader.opaque(1024)?.to_vec();
        let flags = reader.u32()?;
        reader.array::<8>()?;
        if let Some(status) = self.exchange_refusal {
            return refused(status);
        }
        let known = self.clients.get(&owner).cloned();
        if flags & UPDATE_CONFIRMED != 0 {
            let confirmed = known.as_ref().filter(|client| client.is_confirmed);
            match confirmed {
                None => return refused(Status::NOENT),
                Some(client) if client.verifier != verifier => return refused(Status::NOT_SAME),
                Some(_) => {}
            }
        }
        let known = known.filter(|client| client.verifier == verifier);
        let client = known.unwrap_or_else(|| {
            // Who was there before has its state until this one is confirmed by a session.
            self.clients_named += 1;
            let client = ClientState {
                id: self.clients_named,
                verifier,
                is_confirmed: false,
                is_complete: false,
            };
            self.unconfirmed.insert(owner, client.clone());
            client
        });
        let mut body = Vec::new();
        body.put_u64(client.id);
        body.put_u32(1);
        body.put_u32(if client.is_confirmed {
            EXCHANGED_CONFIRMED
        } else {
            0
        });
        body.put_u32(0);
        body.put_u64(0);
        body.put_opaque(b"server");
        body.put_opaque(b"scope");
        body.put_u32(0);
        Ok((Status::OK, body))
    }

    fn create_session(&mut self, reader: &mut Reader<'_>) -> Answer {
        let id = reader.u64()?;
        reader.array::<8>()?;
        let fore: [u8; 28] = reader.array()?;
        reader.array::<28>()?;
        reader.array::<12>()?;
        let mut unconfirmed = self.unconfirmed.iter();
        let new = unconfirmed.find(|(_, client)| client.id == id);
        if let Some(owner) = new.map(|(owner, _)| owner.clone()) {
            self.confirm(owner);
        }
        if !self.clients.values().any(|client| client.id == id) {
            return refused(Status::STALE_CLIENTID);
        }
        let number = self.number();
        let mut session = [0; 16];
        session[..8].copy_from_slice(&number.to_be_bytes());
        let slots = u32::from_be_bytes(*fore[20..].first_chunk().unwrap()).min(8);
        let state = SessionState {
            client: id,
            slots: (0..slots).map(|_| SlotState::default()).collect(),
        };
        self.sessions.insert(session, state);
        self.bound.insert((session, self.serving));
        let mut body = session.to_vec();
        body.put_u32(1);
        body.put_u32(0);
        body.extend_from_slice(&fore[..20]);
        body.put_u32(slots);
        body.put_u32(0);
        body.extend_from_slice(&[0; 28]);
        Ok((Status::OK, body))
    }

    /// A client has a session now, and what another one of its owner had is ended.
    fn confirm(&mut self, owner: Vec<u8>) {
        let Some(mut client) = self.unconfirmed.remove(&owner) else {
            return;
        };
        client.is_confirmed = true;
        if let Some(former) = self.clients.insert(owner, client) {
            self.sessions
                .retain(|_, session| session.client != former.id);
            if self.holder == Some(former.id) {
                self.holder = None;
            }
        }
    }

    pub fn in_a_session(&mut self, client: u64, number: u32, reader: &mut Reader<'_>) -> Answer {
        match number {
            operation::PUTROOTFH => Ok((Status::OK, Vec::new())),
            operation::LOOKUP => {
                reader.opaque(1024)?;
                Ok((Status::OK, Vec::new()))
            }
            operation::PUTFH => {
                assert_eq!(reader.opaque(128)?, HANDLE);
                if self.is_stale {
                    return refused(Status::STALE);
                }
                Ok((Status::OK, Vec::new()))
            }
            operation::GETFH => {
                let mut body = Vec::new();
                body.put_opaque(HANDLE);
                Ok((Status::OK, body))
            }
            operation::RECLAIM_COMPLETE => {
                reader.u32()?;
                let mut clients = self.clients.values_mut();
                let client = clients
                    .find(|one| one.id == client)
                    .expect("it has a session");
                if std::mem::replace(&mut client.is_complete, true) {
                    return refused(Status::COMPLETE_ALREADY);
                }
                Ok((Status::OK, Vec::new()))
            }
            operation::OPEN => self.open(client, reader),
            operation::GETATTR => {
                reader.bitmap()?;
                let mut values = Vec::new();
                values.put_u64(self.current.len() as u64);
                values.put_u32(LEASE_S);
                let mut body = Vec::new();
                body.put_bitmap(&[attribute::SIZE, attribute::LEASE_TIME]);
                body.put_opaque(&values);
                Ok((Status::OK, body))
            }
            operation::CLOSE => {
                reader.array::<20>()?;
                self.holder = None;
                Ok((Status::OK, vec![0; 16]))
            }
            _ => self.on_data(client, number, reader),
        }
    }

    fn open(&mut self, client: u64, reader: &mut Reader<'_>) -> Answer {
        reader.array::<20>()?;
        reader.opaque(1024)?;
        if reader.bool()? {
            reader.u32()?;
            reader.bitmap()?;
            reader.opaque(100)?;
        }
        let is_reclaim = match reader.u32()? {
            0 => {
                reader.opaque(1024)?;
                false
            }
            _ => reader.u32()? == 0,
        };
        let owner = self.clients.iter().find(|(_, one)| one.id == client);
        let (owner, _) = owner.expect("it has a session");
        let is_grace = self.now_ms < self.grace_until_ms;
        if is_reclaim && !(is_grace && self.former_holder.as_ref() == Some(owner)) {
            return refused(Status::NO_GRACE);
        }
        if !is_reclaim && is_grace {
            return refused(Status::GRACE);
        }
        if self.holder.is_some_and(|holder| holder != client) {
            return refused(Status::SHARE_DENIED);
        }
        self.holder = Some(client);
        let mut body = vec![0; 16 + 20];
        body[..8].copy_from_slice(&(client << 32 | self.restarts).to_be_bytes());
        body.put_u32(0);
        body.put_u32(0);
        body.put_u32(0);
        Ok((Status::OK, body))
    }

    fn on_data(&mut self, client: u64, number: u32, reader: &mut Reader<'_>) -> Answer {
        let delays = self.faults.delays;
        let is_delayed = self.random.chance(delays, 1000);
        let is_short = self.random.chance(self.faults.short, 1000);
        let is_full = self.random.chance(self.faults.full, 1000);
        let mut body = Vec::new();
        match number {
            operation::READ => {
                let state = reader.array()?;
                let offset = usize::try_from(reader.u64()?).unwrap();
                let mut count = reader.u32()? as usize;
                if let Some(status) = self.denies(client, &state, is_delayed) {
                    return refused(status);
                }
                if is_short {
                    count = count.div_ceil(2).next_multiple_of(512).min(count);
                }
                let end = (offset + count).min(self.current.len());
                body.put_u32(u32::from(end == self.current.len()));
                body.put_opaque(&self.current[offset..end]);
            }
            operation::WRITE => {
                let state = reader.array()?;
                let offset = usize::try_from(reader.u64()?).unwrap();
                let stable = reader.u32()?;
                let mut data = reader.opaque(1 << 20)?;
                if let Some(status) = self.denies(client, &state, is_delayed) {
                    return refused(status);
                }
                if is_full {
                    return refused(Status::NOSPC);
                }
                if let Some(status) = self.durable_refusal.filter(|_| stable > 0) {
                    return refused(status);
                }
                if is_short {
                    let count = data.len().div_ceil(2).next_multiple_of(512);
                    data = &data[..count.min(data.len())];
                }
                let range = offset..offset + data.len();
                self.current[range.clone()].copy_from_slice(data);
                for block in range.start / 4096..range.end.div_ceil(4096) {
                    self.unwritable.remove(&block);
                }
                if stable > 0 {
                    // What a server makes durable is whole blocks of its own.
                    let blocks = range.start / 4096 * 4096..range.end.next_multiple_of(4096);
                    self.durable[blocks.clone()].copy_from_slice(&self.current[blocks]);
                }
                body.put_u32(u32::try_from(data.len()).unwrap());
                body.put_u32(stable);
                body.put_u64(self.verifier);
            }
            operation::COMMIT => {
                reader.array::<12>()?;
                if is_delayed {
                    return refused(Status::DELAY);
                }
                if !self.commit() {
                    return refused(Status::IO);
                }
                body.put_u64(self.verifier);
            }
            operation::SETATTR => {
                let state = reader.array()?;
                reader.bitmap()?;
                let size = Reader::new(reader.opaque(100)?).u64()?;
                if let Some(status) = self.denies(client, &state, is_delayed) {
                    return refused(status);
                }
                let size = usize::try_from(size).unwrap();
                self.current.resize(size, 0);
                self.durable.resize(size, 0);
                body.put_bitmap(&[attribute::SIZE]);
            }
            _ => return refused(Status::NOTSUPP),
        }
        Ok((Status::OK, body))
    }

    fn denies(&self, client: u64, state: &[u8; 16], is_delayed: bool) -> Option<Status> {
        if is_delayed {
            Some(Status::DELAY)
        } else if self.now_ms < self.grace_until_ms && self.holder != Some(client) {
            Some(Status::GRACE)
        } else if self.holder != Some(client)
            || state[..8] != (client << 32 | self.restarts).to_be_bytes()
        {
            Some(Status::BAD_STATEID)
        } else {
            None
        }
    }
}

const fn refused(status: Status) -> Answer {
    Ok((status, Vec::new()))
}
